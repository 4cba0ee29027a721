#include "support/ptx/source.h"

#include <cctype>
#include <regex>

#include "support/ptx/program.h"

namespace qccl::ptx {
namespace {

// Comments become spaces; lines stay.
std::string without_comments(std::string text) {
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    if (text[at] != '/' || (text[at + 1] != '/' && text[at + 1] != '*')) continue;
    const bool is_line = text[at + 1] == '/';
    std::size_t end = text.find(is_line ? "\n" : "*/", at + 2);
    end = end == std::string::npos ? text.size() : end + (is_line ? 0 : 2);
    for (; at < end; ++at) {
      if (text[at] != '\n') text[at] = ' ';
    }
    --at;
  }
  return text;
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(without_comments(text)) {}

  ModuleSource read() {
    ModuleSource module;
    while (skip_spaces()) {
      if (starts_with(".version")) {
        module.version = rest_of_line(8);
      } else if (starts_with(".target")) {
        module.target = rest_of_line(7);
      } else if (starts_with(".address_size")) {
        rest_of_line(13);
      } else {
        read_declaration(module);
      }
    }
    return module;
  }

 private:
  bool starts_with(const char* word) const {
    return text_.compare(at_, std::char_traits<char>::length(word), word) == 0;
  }

  // False at the end.
  bool skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) advance();
    return at_ < text_.size();
  }

  void advance() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }

  // Text up to one of the characters, which is read too and kept in `stopped_at_`.
  std::string until(const char* ends) {
    std::string result;
    for (; at_ < text_.size(); advance()) {
      if (std::string(ends).find(text_[at_]) != std::string::npos) {
        stopped_at_ = text_[at_];
        advance();
        return trimmed(result);
      }
      result += text_[at_];
    }
    throw Fault("PTX line " + std::to_string(line_) + ": the text ends within a statement");
  }

  std::string rest_of_line(std::size_t skipped) {
    at_ += skipped;
    return until("\n");
  }

  void read_declaration(ModuleSource& module) {
    const int line = line_;
    const std::string header = until(";{");
    static const std::regex kFunction(
        R"((?:\.(?:visible|weak|extern)\s+)*\.(func|entry)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*(?:\(([^)]*)\))?[^()]*)");
    std::smatch match;
    if (!std::regex_match(header, match, kFunction)) {
      if (stopped_at_ == '{') throw Fault("PTX line " + std::to_string(line) + ": unknown declaration: " + header);
      module.variables.push_back({Statement::Kind::plain, header, line});
      return;
    }
    if (stopped_at_ == ';') return;  // only declared
    FunctionSource function{match[1] == "entry", match[3], split(match[2], ','), split(match[4], ','), {}};
    read_body(function.body);
    module.functions.push_back(std::move(function));
  }

  bool is_at_label() const {
    std::size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '_' || text_[end] == '$')) {
      ++end;
    }
    return end > at_ && end < text_.size() && text_[end] == ':' && text_[end + 1] != ':';
  }

  void read_body(std::vector<Statement>& body) {
    for (int depth = 1; depth > 0;) {
      skip_spaces();
      const int line = line_;
      if (at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '}')) {
        const bool opens = text_[at_] == '{';
        depth += opens ? 1 : -1;
        if (depth > 0) body.push_back({opens ? Statement::Kind::open : Statement::Kind::close, "", line});
        advance();
      } else if (is_at_label()) {
        body.push_back({Statement::Kind::label, until(":"), line});
      } else {
        body.push_back({Statement::Kind::plain, until(";"), line});
      }
    }
  }

  const std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  char stopped_at_ = 0;
};

}  // namespace

ModuleSource read_source(const std::string& text) { return Reader(text).read(); }

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '(' || c == '[') ++depth;
    if (c == '}' || c == ')' || c == ']') --depth;
    if (c == separator && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!parts.empty() || !trimmed(part).empty()) parts.push_back(trimmed(part));
  return parts;
}

}  // namespace qccl::ptx
