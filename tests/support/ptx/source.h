// PTX text as nested statements, with line numbers and without comments.
#pragma once

#include <string>
#include <vector>

namespace qccl::ptx {

// A statement of a function's body. A scope is the statements between an `open` and its `close`.
struct Statement {
  enum class Kind { plain, label, open, close };
  Kind kind = Kind::plain;
  std::string text;  // trimmed, without the semicolon, or the label without the colon
  int line = 0;
};

struct FunctionSource {
  bool is_entry = false;
  std::string name;
  std::vector<std::string> results;     // declarations: ".param .b64 func_retval0"
  std::vector<std::string> parameters;  // likewise
  std::vector<Statement> body;
};

struct ModuleSource {
  std::string version;
  std::string target;
  std::vector<Statement> variables;  // of the module
  std::vector<FunctionSource> functions;
};

// Throws Fault.
ModuleSource read_source(const std::string& text);

// The parts between the separators that no bracket, brace or parenthesis encloses, trimmed. None of an empty text.
std::vector<std::string> split(const std::string& text, char separator);
std::string trimmed(const std::string& text);

}  // namespace qccl::ptx
