#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qccl/diagnostics.h"

namespace qccl {

// What diagnose() collects.
class Findings {
 public:
  void fact(std::string topic, std::string text) {
    list.push_back({Finding::Level::fact, std::move(topic), std::move(text)});
  }
  void warning(std::string topic, std::string text, std::string remedy) {
    list.push_back({Finding::Level::warning, std::move(topic), std::move(text), std::move(remedy)});
  }
  void broken(std::string topic, std::string text, std::string remedy) {
    list.push_back({Finding::Level::broken, std::move(topic), std::move(text), std::move(remedy)});
  }

  std::vector<Finding> list;
};

}  // namespace qccl
