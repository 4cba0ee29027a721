#include "support/ptx/assembler.h"

#include <algorithm>
#include <optional>

#include "support/ptx/operations.h"
#include "support/ptx/source.h"

namespace qccl::ptx {
namespace {

constexpr int kPredicateBits = 1;
constexpr int kPointerBits = 64;

std::uint32_t aligned(std::uint32_t offset, std::uint32_t to) { return (offset + to - 1) / to * to; }

// A variable's declaration: ".param .align 16 .b8 retval0[64]", ".param .u64 .ptr .align 1 name".
struct Variable {
  std::string name;
  std::uint32_t bytes = 0;
  std::uint32_t alignment = 1;
};

Variable variable_of(const std::string& declaration) {
  Variable variable;
  std::uint32_t element_bytes = 0;
  const std::vector<std::string> words = split(declaration, ' ');
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == ".align") variable.alignment = static_cast<std::uint32_t>(std::stoul(words[i + 1]));
    if (word.size() > 2 && std::isdigit(static_cast<unsigned char>(word[2])) != 0) {
      element_bytes = static_cast<std::uint32_t>(std::stoul(word.substr(2))) / 8;
    }
  }
  const std::string& last = words.back();
  const std::size_t bracket = last.find('[');
  variable.name = last.substr(0, bracket);
  const bool is_array = bracket != std::string::npos;
  const std::uint32_t count = is_array ? static_cast<std::uint32_t>(std::stoul(last.substr(bracket + 1))) : 1;
  variable.bytes = element_bytes * count;
  if (!is_array) variable.alignment = element_bytes;
  return variable;
}

// What a name in a function stands for.
struct Name {
  enum class Kind { none, reg, variable };
  Kind kind = Kind::none;
  int bits = 0;   // of a register
  Slot slot = 0;  // likewise
  Space space = Space::generic;
  Parameter place{};  // of a variable, in its space
};

class Assembler {
 public:
  Program assemble(const ModuleSource& source);

 private:
  struct PendingCall {
    std::uint32_t at = 0;  // in Program::calls
    std::string callee;
    std::vector<Parameter> arguments, results;
    int line = 0;
  };
  struct Function {
    std::uint32_t begin = 0;
    std::vector<Parameter> results, parameters;
  };
  using Scope = std::map<std::string, Name>;

  // ---- memory
  Slot add_slot(int bits);
  Slot constant(int bits, std::uint64_t value);
  Parameter add_parameter(const std::string& declaration);
  void declare(const std::string& text);
  void declare_registers(const std::string& text);

  // ---- functions and statements
  void assemble(const FunctionSource& function);
  void read(const Statement& statement);
  void read_instruction(std::string text);
  void read_operation(Instruction& instruction, const std::string& name, const std::vector<std::string>& operands);
  void read_meeting(Instruction& instruction, const Form& form, std::vector<std::string> operands);
  void read_access(Instruction& instruction, const std::string& name, const std::vector<std::string>& operands);
  void read_packing(Instruction& instruction, const std::string& name, const std::vector<std::string>& operands);
  void read_call(Instruction& instruction, const std::vector<std::string>& operands);
  void resolve_calls();
  void resolve_labels();

  // ---- operands
  const Name* find(const std::string& name) const;
  Slot operand(const std::string& text, int bits);
  std::optional<std::uint64_t> immediate(const std::string& text, int bits) const;
  int width_of(const std::string& text) const;
  void read_address(Instruction& instruction, const std::string& text);

  [[noreturn]] void fail(const std::string& what) const {
    throw Fault("PTX line " + std::to_string(line_) + ": " + what);
  }

  Program program_;
  std::map<std::pair<int, std::uint64_t>, Slot> constants_;
  std::map<std::string, Function> functions_;
  std::vector<PendingCall> calls_;
  std::vector<Scope> scopes_;                    // the module's first
  std::vector<std::uint32_t> parameter_ends_;    // at the beginning of each scope
  std::map<std::string, std::uint32_t> labels_;  // the function's, as what follows
  std::vector<std::pair<std::uint32_t, std::string>> branches_;
  std::uint32_t parameter_end_ = 0;
  std::size_t shared_end_ = 0;
  int line_ = 0;
};

Program Assembler::assemble(const ModuleSource& source) {
  program_.version = source.version;
  program_.target = source.target;
  scopes_.emplace_back();
  for (std::size_t i = 0; i < kSpecialNames.size(); ++i) {
    program_.specials[i] = add_slot(32);
    scopes_[0][kSpecialNames[i]] = {Name::Kind::reg, 32, program_.specials[i], {}, {}};
  }
  for (const Statement& variable : source.variables) read(variable);
  const std::size_t shared_by_all = shared_end_;
  for (const FunctionSource& function : source.functions) {
    shared_end_ = shared_by_all;
    assemble(function);
  }
  resolve_calls();
  return std::move(program_);
}

// ---- memory

Slot Assembler::add_slot(int bits) {
  constexpr std::size_t kAlignment = 64;
  const auto slot = static_cast<Slot>(program_.register_bytes);
  const std::size_t bytes = bits == kPredicateBits ? sizeof(Mask) : static_cast<std::size_t>(bits) / 8 * kLanes;
  program_.register_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return slot;
}

Slot Assembler::constant(int bits, std::uint64_t value) {
  const auto [found, is_new] = constants_.try_emplace({bits, value}, 0);
  if (is_new) {
    found->second = add_slot(bits);
    program_.constants.push_back({found->second, bits, value});
  }
  return found->second;
}

// In the parameter memory, behind those of the function and of the scopes that are open.
Parameter Assembler::add_parameter(const std::string& declaration) {
  const Variable variable = variable_of(declaration);
  const std::uint32_t offset = aligned(parameter_end_, std::max(16u, variable.alignment));
  parameter_end_ = offset + variable.bytes;
  program_.parameter_bytes = std::max<std::size_t>(program_.parameter_bytes, parameter_end_);
  const Parameter place{offset, variable.bytes};
  scopes_.back()[variable.name] = {Name::Kind::variable, 0, 0, Space::param, place};
  return place;
}

void Assembler::declare(const std::string& text) {
  if (text.starts_with(".reg")) return declare_registers(text);
  if (text.starts_with(".pragma")) return;
  if (text.starts_with(".param")) {
    add_parameter(text);
    return;
  }
  const bool is_local = text.starts_with(".local");
  if (!is_local && !text.starts_with(".shared")) fail("unknown directive: " + text);
  const Variable variable = variable_of(text);
  std::size_t& end = is_local ? program_.local_bytes : shared_end_;
  const std::uint32_t offset = aligned(static_cast<std::uint32_t>(end), std::max(16u, variable.alignment));
  end = std::size_t{offset} + variable.bytes;
  const Space space = is_local ? Space::local : Space::shared;
  scopes_.back()[variable.name] = {Name::Kind::variable, 0, 0, space, {offset, variable.bytes}};
}

// ".reg .b32 %r<20>", ".reg .pred p, q"
void Assembler::declare_registers(const std::string& text) {
  const std::size_t type_begin = text.find('.', 1);
  const std::size_t type_end = text.find_first_of(" \t", type_begin);
  const std::string type = text.substr(type_begin + 1, type_end - type_begin - 1);
  const int bits = type == "pred" ? kPredicateBits : std::stoi(type.substr(1));
  for (const std::string& name : split(text.substr(type_end), ',')) {
    const std::size_t bracket = name.find('<');
    if (bracket == std::string::npos) {
      scopes_.back()[name] = {Name::Kind::reg, bits, add_slot(bits), {}, {}};
      continue;
    }
    const int count = std::stoi(name.substr(bracket + 1));
    for (int i = 0; i < count; ++i) {
      scopes_.back()[name.substr(0, bracket) + std::to_string(i)] = {Name::Kind::reg, bits, add_slot(bits), {}, {}};
    }
  }
}

// ---- functions and statements

// Every function has registers and parameters of its own: none calls itself.
void Assembler::assemble(const FunctionSource& source) {
  scopes_.emplace_back();
  labels_.clear();
  branches_.clear();
  parameter_end_ = static_cast<std::uint32_t>(program_.parameter_bytes);
  Function function{static_cast<std::uint32_t>(program_.code.size()), {}, {}};
  for (const std::string& result : source.results) function.results.push_back(add_parameter(result));
  for (const std::string& parameter : source.parameters) function.parameters.push_back(add_parameter(parameter));
  for (const Statement& statement : source.body) read(statement);
  resolve_labels();
  scopes_.pop_back();
  if (source.is_entry) program_.entries[source.name] = {function.begin, function.parameters, shared_end_};
  functions_[source.name] = std::move(function);
}

void Assembler::read(const Statement& statement) {
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::open:
      scopes_.emplace_back();
      parameter_ends_.push_back(parameter_end_);
      break;
    case Statement::Kind::close:
      scopes_.pop_back();
      parameter_end_ = parameter_ends_.back();
      parameter_ends_.pop_back();
      break;
    case Statement::Kind::label: labels_[statement.text] = static_cast<std::uint32_t>(program_.code.size()); break;
    case Statement::Kind::plain:
      if (statement.text.starts_with(".")) {
        declare(statement.text);
      } else {
        read_instruction(statement.text);
      }
      break;
  }
}

void Assembler::read_instruction(std::string text) {
  Instruction instruction;
  instruction.line = line_;
  program_.text.push_back(text);
  if (text.starts_with("@")) {
    const std::size_t end = text.find_first_of(" \t");
    instruction.has_predicate = true;
    instruction.is_negated = text[1] == '!';
    instruction.predicate =
        operand(text.substr(instruction.is_negated ? 2 : 1, end - (instruction.is_negated ? 2 : 1)), kPredicateBits);
    text = trimmed(text.substr(end));
  }
  const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string name = text.substr(0, end);
  const std::vector<std::string> operands = split(text.substr(end), ',');
  if (name == "bra" || name == "bra.uni") {
    instruction.flow = Flow::branch;
    branches_.emplace_back(program_.code.size(), operands.at(0));
  } else if (name == "ret" || name == "exit" || name == "ret.uni") {
    instruction.flow = Flow::ret;
  } else if (name == "call.uni" || name == "call") {
    read_call(instruction, operands);
  } else {
    read_operation(instruction, name, operands);
  }
  program_.code.push_back(instruction);
}

void Assembler::read_operation(Instruction& instruction, const std::string& name,
                               const std::vector<std::string>& operands) {
  if (name.starts_with("ld.") || name.starts_with("st.")) return read_access(instruction, name, operands);
  if (const Form* const form = find_meeting(name)) return read_meeting(instruction, *form, operands);
  const bool moves_parts = name.starts_with("mov.") && operands.size() == 2 &&
                           (operands[0].starts_with("{") || operands[1].starts_with("{"));
  if (moves_parts) return read_packing(instruction, name, operands);
  const Form* const form = find_operation(name);
  if (form == nullptr) fail("unknown instruction: " + name);
  if (form->widths.size() != operands.size()) fail(name + " with other operands than it has");
  instruction.run = form->run;
  for (std::size_t i = 0; i < operands.size(); ++i) instruction.operands[i] = operand(operands[i], form->widths[i]);
}

// The last operand names the lanes. A shuffle has two targets: "%r1|%p1".
void Assembler::read_meeting(Instruction& instruction, const Form& form, std::vector<std::string> operands) {
  instruction.flow = Flow::meet;
  instruction.run = form.run;
  instruction.members = operand(operands.back(), 32);
  operands.pop_back();
  if (form.widths.size() > 4) {
    const std::vector<std::string> targets = split(operands[0], '|');
    operands[0] = targets[0];
    operands.insert(operands.begin() + 1, targets.size() > 1 ? targets[1] : "_");
  }
  if (form.widths.size() != operands.size()) fail("other operands than the instruction has");
  for (std::size_t i = 0; i < operands.size(); ++i) instruction.operands[i] = operand(operands[i], form.widths[i]);
}

// ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r1+16]
void Assembler::read_access(Instruction& instruction, const std::string& name,
                            const std::vector<std::string>& operands) {
  const bool loads = name.starts_with("ld.");
  const std::vector<std::string> words = split(name, '.');
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "global") instruction.space = Space::global;
    if (word == "shared") instruction.space = Space::shared;
    if (word == "local") instruction.space = Space::local;
    if (word == "param") instruction.space = Space::param;
    const bool is_known = instruction.space != Space::generic || word == "v2" || word == "v4" || word == "nc";
    if (!is_known) fail("unknown instruction: " + name);
  }
  const std::string& values = operands[loads ? 0 : 1];
  read_address(instruction, operands[loads ? 1 : 0]);
  const std::vector<std::string> elements =
      values.starts_with("{") ? split(values.substr(1, values.size() - 2), ',') : std::vector<std::string>{values};
  instruction.vector = static_cast<std::uint8_t>(elements.size());
  const int type_bits = std::stoi(words.back().substr(1));
  int bits = std::max(16, type_bits);
  for (const std::string& element : elements) bits = std::max(bits, width_of(element));
  for (std::size_t i = 0; i < elements.size(); ++i) instruction.operands[i + 1] = operand(elements[i], bits);
  instruction.run = find_access(loads, words.back(), bits);
  if (instruction.run == nullptr) fail("unknown instruction: " + name);
}

// mov.b32 %r1, {%rs1, %rs2}, and the other way round
void Assembler::read_packing(Instruction& instruction, const std::string& name,
                             const std::vector<std::string>& operands) {
  const bool packs = operands[1].starts_with("{");
  const std::string& braces = operands[packs ? 1 : 0];
  const std::vector<std::string> parts = split(braces.substr(1, braces.size() - 2), ',');
  const int bits = std::stoi(name.substr(5));
  if (parts.size() != 2 || (bits != 32 && bits != 64)) fail("unknown instruction: " + name + " of parts");
  instruction.vector = 2;
  instruction.run = packs ? packing(bits) : unpacking(bits);
  const std::size_t first_part = packs ? 1 : 0;
  instruction.operands[packs ? 0 : 2] = operand(operands[packs ? 0 : 1], bits);
  for (std::size_t i = 0; i < 2; ++i) instruction.operands[first_part + i] = operand(parts[i], bits / 2);
}

// call.uni (retval0), name, (param0, param1)
void Assembler::read_call(Instruction& instruction, const std::vector<std::string>& operands) {
  const auto places = [&](const std::string& list) {
    std::vector<Parameter> result;
    for (const std::string& name : split(list.substr(1, list.size() - 2), ',')) {
      const Name* const found = find(name);
      if (found == nullptr || found->space != Space::param) fail("unknown parameter: " + name);
      result.push_back(found->place);
    }
    return result;
  };
  PendingCall call{static_cast<std::uint32_t>(program_.calls.size()), "", {}, {}, line_};
  for (const std::string& each : operands) {
    if (!each.starts_with("(")) {
      call.callee = each;
    } else if (call.callee.empty()) {
      call.results = places(each);
    } else {
      call.arguments = places(each);
    }
  }
  instruction.flow = Flow::call;
  instruction.target = call.at;
  program_.calls.emplace_back();
  calls_.push_back(std::move(call));
}

void Assembler::resolve_calls() {
  for (const PendingCall& pending : calls_) {
    line_ = pending.line;
    const auto found = functions_.find(pending.callee);
    if (found == functions_.end()) fail("a call of a function without a body: " + pending.callee);
    const Function& callee = found->second;
    if (callee.parameters.size() != pending.arguments.size() || callee.results.size() != pending.results.size()) {
      fail("a call with other parameters than " + pending.callee + " has");
    }
    Call& call = program_.calls[pending.at];
    call.begin = callee.begin;
    for (std::size_t i = 0; i < pending.arguments.size(); ++i) {
      call.arguments.push_back({pending.arguments[i], callee.parameters[i].offset});
    }
    for (std::size_t i = 0; i < pending.results.size(); ++i) {
      call.results.push_back({callee.results[i], pending.results[i].offset});
    }
  }
}

void Assembler::resolve_labels() {
  for (const auto& [at, label] : branches_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) fail("a branch to no label of the function: " + label);
    program_.code[at].target = found->second;
  }
}

// ---- operands

const Name* Assembler::find(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(name); found != scope->end()) return &found->second;
  }
  return nullptr;
}

int Assembler::width_of(const std::string& text) const {
  const Name* const name = find(text);
  return name == nullptr ? 0 : name->bits;
}

// "-5", "0x1FU", "0f3F800000", "0d..."
std::optional<std::uint64_t> Assembler::immediate(const std::string& text, int bits) const {
  if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D")) {
    return std::stoull(text.substr(2), nullptr, 16);
  }
  const bool is_number = !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-');
  if (!is_number) return std::nullopt;
  const std::uint64_t value =
      text[0] == '-' ? static_cast<std::uint64_t>(std::stoll(text)) : std::stoull(text, nullptr, 0);
  return bits >= 64 ? value : value & ((std::uint64_t{1} << bits) - 1);
}

// A register of that many bits, an immediate, or the address of a variable in its space. "_": nothing.
Slot Assembler::operand(const std::string& text, int bits) {
  if (text == "_") return add_slot(bits);
  if (const auto value = immediate(text, bits)) return constant(bits, *value);
  const Name* const name = find(text);
  if (name == nullptr) fail("unknown operand: " + text);
  if (name->kind == Name::Kind::variable) return constant(bits, name->place.offset);
  if (name->bits != bits) fail("the operand " + text + " has another width than " + std::to_string(bits));
  return name->slot;
}

// "[%rd1+16]", "[%r1]", "[param0+-4]"
void Assembler::read_address(Instruction& instruction, const std::string& text) {
  const std::string inside = trimmed(text.substr(1, text.size() - 2));
  const std::size_t plus = inside.find('+');
  const std::string base = trimmed(inside.substr(0, plus));
  if (plus != std::string::npos) instruction.offset = std::stoll(trimmed(inside.substr(plus + 1)));
  const Name* const name = find(base);
  if (name == nullptr) fail("unknown address: " + text);
  const bool is_register = name->kind == Name::Kind::reg;
  instruction.has_wide_base = !is_register || name->bits == kPointerBits;
  instruction.operands[0] = operand(base, is_register ? name->bits : kPointerBits);
}

}  // namespace

Program assemble(const std::string& text) { return Assembler().assemble(read_source(text)); }

}  // namespace qccl::ptx
