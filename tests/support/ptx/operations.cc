#include "support/ptx/operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

namespace qccl::ptx {
namespace {

using Table = std::map<std::string, Form, std::less<>>;

// ---- a function of a lane's operands as an operation on all lanes

template <class T>
class Operand {
 public:
  Operand(Warp& warp, Slot slot) : values_(warp.at<T>(slot)) {}
  T get(int lane) const { return values_[lane]; }
  void set(int lane, T value) const { values_[lane] = value; }
  void end(Mask) const {}

 private:
  T* const values_;
};

template <>
class Operand<bool> {
 public:
  Operand(Warp& warp, Slot slot) : mask_(warp.at<Mask>(slot)) {}
  bool get(int lane) const { return (*mask_ >> lane & 1) != 0; }
  void set(int lane, bool value) { result_ |= static_cast<Mask>(value) << lane; }
  void end(Mask lanes) const { *mask_ = (*mask_ & ~lanes) | result_; }

 private:
  Mask* const mask_;
  Mask result_ = 0;
};

template <class T>
constexpr int kWidth = std::is_same_v<T, bool> ? 1 : 8 * static_cast<int>(sizeof(T));

// Runs a lambda without captures, whose type says what operands there are.
template <class Function, class R, class... A>
struct Applied {
  template <std::size_t... kIndex>
  static void run_with(Warp& warp, const Instruction& instruction, Mask lanes, std::index_sequence<kIndex...>) {
    const std::tuple<Operand<A>...> sources{Operand<A>(warp, instruction.operands[kIndex + 1])...};
    Operand<R> target(warp, instruction.operands[0]);
    for_lanes(lanes, [&](int lane) { target.set(lane, Function()(std::get<kIndex>(sources).get(lane)...)); });
    target.end(lanes);
  }
  static void run(Warp& warp, const Instruction& instruction, Mask lanes) {
    run_with(warp, instruction, lanes, std::index_sequence_for<A...>());
  }
};

template <class Function, class R, class... A>
Form form_of(R (Function::*)(A...) const) {
  return {Applied<Function, R, A...>::run, {kWidth<R>, kWidth<A>...}};
}

template <class Function>
Form applied(Function) {
  return form_of<Function>(&Function::operator());
}

// ---- numbers

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Without overflow, which the compiler may take for impossible.
template <class T, class Use>
T wrapped(T a, T b, Use use) {
  using Wide = std::common_type_t<Unsigned<T>, unsigned>;
  return static_cast<T>(
      use(static_cast<Wide>(static_cast<Unsigned<T>>(a)), static_cast<Wide>(static_cast<Unsigned<T>>(b))));
}

template <class T>
T divided(T a, T b) {
  if (b == 0) throw Fault("a division by zero");
  return static_cast<T>(a / b);
}
template <class T>
T remainder_of(T a, T b) {
  if (b == 0) throw Fault("a division by zero");
  return static_cast<T>(a % b);
}

template <class T>
T shifted_left(T a, std::uint32_t by) {
  return by >= kWidth<T> ? 0 : static_cast<T>(static_cast<Unsigned<T>>(a) << by);
}
template <class T>
T shifted_right(T a, std::uint32_t by) {
  if (by < kWidth<T>) return static_cast<T>(a >> by);
  return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : static_cast<T>(0);
}

// Arithmetic's NaN.
float arithmetic(float value) { return value != value ? std::bit_cast<float>(0x7FFFFFFFu) : value; }
double arithmetic(double value) { return value != value ? std::bit_cast<double>(0x7FFFFFFFFFFFFFFFull) : value; }

// The one that is a number, if one is; -0 is less than +0.
template <class T>
T lesser(T a, T b) {
  if (a != a || b != b) return arithmetic(a != a ? b : a);
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T>
T greater(T a, T b) {
  if (a != a || b != b) return arithmetic(a != a ? b : a);
  return a > b || (a == b && std::signbit(b)) ? a : b;
}

float from_half(std::uint16_t half) { return arithmetic(static_cast<float>(std::bit_cast<_Float16>(half))); }
std::uint16_t to_half(float value) {
  return value != value ? std::uint16_t{0x7FFF} : std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

std::uint64_t in_shared(std::uint64_t address) {
  if ((address & kWindowMask) != kSharedWindow) throw Fault("an address that is not of shared memory");
  return address & ~kWindowMask;
}

template <class To, class From>
To truncated(From value) {
  if (value != value) return 0;
  constexpr From kLeast = static_cast<From>(std::numeric_limits<To>::min());
  constexpr From kEnd = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
  if (value <= kLeast) return std::numeric_limits<To>::min();
  if (value >= kEnd) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

std::uint32_t permuted(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t select = selector >> (4 * i) & 0xF;
    const auto byte = static_cast<std::uint32_t>(bytes >> (8 * (select & 7)) & 0xFF);
    const std::uint32_t sign = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= ((select & 8) != 0 ? sign : byte) << (8 * i);
  }
  return result;
}

// Bits [begin, begin + count) of a, the sign of a signed type spread over the rest.
template <class T>
T bit_field(T a, std::uint32_t begin, std::uint32_t count) {
  begin &= 0xFF;
  count &= 0xFF;
  const std::uint32_t last = std::min<std::uint32_t>(begin + count - 1, kWidth<T> - 1);
  const bool fills = std::is_signed_v<T> && count > 0 && (static_cast<Unsigned<T>>(a) >> last & 1) != 0;
  Unsigned<T> result = 0;
  for (std::uint32_t i = 0; i < kWidth<T>; ++i) {
    const bool is_inside = i < count && begin + i < kWidth<T>;
    const bool bit = is_inside ? (static_cast<Unsigned<T>>(a) >> (begin + i) & 1) != 0 : fills;
    result |= static_cast<Unsigned<T>>(bit) << i;
  }
  return static_cast<T>(result);
}

template <class T>
T bit_field_inserted(T field, T into, std::uint32_t begin, std::uint32_t count) {
  T result = into;
  for (std::uint32_t i = 0; i < (count & 0xFF) && (begin & 0xFF) + i < kWidth<T>; ++i) {
    const std::uint32_t bit = (begin & 0xFF) + i;
    result = static_cast<T>((result & ~(T{1} << bit)) | (field >> i & 1) << bit);
  }
  return result;
}

std::uint32_t by_truth_table(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t result = 0;
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
    result |= (table >> row & 1) << i;
  }
  return result;
}

// ---- the table, by families

template <class T>
void add_comparisons(Table& table, const std::string& type) {
  table["setp.eq." + type] = applied([](T a, T b) { return a == b; });
  table["setp.lt." + type] = applied([](T a, T b) { return a < b; });
  table["setp.le." + type] = applied([](T a, T b) { return a <= b; });
  table["setp.gt." + type] = applied([](T a, T b) { return a > b; });
  table["setp.ge." + type] = applied([](T a, T b) { return a >= b; });
}

template <class T>
void add_selection(Table& table, const std::string& type) {
  table["mov." + type] = applied([](T a) { return a; });
  table["selp." + type] = applied([](T a, T b, bool first) { return first ? a : b; });
}

template <class T>
void add_integers(Table& table, const std::string& type) {
  add_comparisons<T>(table, type);
  add_selection<T>(table, type);
  table["setp.ne." + type] = applied([](T a, T b) { return a != b; });
  table["add." + type] = applied([](T a, T b) { return wrapped(a, b, [](auto x, auto y) { return x + y; }); });
  table["sub." + type] = applied([](T a, T b) { return wrapped(a, b, [](auto x, auto y) { return x - y; }); });
  table["mul.lo." + type] = applied([](T a, T b) { return wrapped(a, b, [](auto x, auto y) { return x * y; }); });
  table["mad.lo." + type] = applied([](T a, T b, T c) {
    return wrapped(wrapped(a, b, [](auto x, auto y) { return x * y; }), c, [](auto x, auto y) { return x + y; });
  });
  table["div." + type] = applied([](T a, T b) { return divided(a, b); });
  table["rem." + type] = applied([](T a, T b) { return remainder_of(a, b); });
  table["min." + type] = applied([](T a, T b) { return std::min(a, b); });
  table["max." + type] = applied([](T a, T b) { return std::max(a, b); });
  table["shr." + type] = applied([](T a, std::uint32_t b) { return shifted_right(a, b); });
  if constexpr (std::is_signed_v<T>) {
    table["neg." + type] = applied([](T a) { return wrapped(T{0}, a, [](auto x, auto y) { return x - y; }); });
    table["abs." + type] =
        applied([](T a) { return a < 0 ? wrapped(T{0}, a, [](auto x, auto y) { return x - y; }) : a; });
  }
  if constexpr (sizeof(T) >= 4)
    table["bfe." + type] = applied([](T a, std::uint32_t b, std::uint32_t c) { return bit_field(a, b, c); });
}

// Products of twice the width.
template <class T, class Wide>
void add_products(Table& table, const std::string& type) {
  table["mul.wide." + type] = applied([](T a, T b) { return static_cast<Wide>(Wide{a} * Wide{b}); });
  table["mul.hi." + type] = applied([](T a, T b) { return static_cast<T>(Wide{a} * Wide{b} >> kWidth<T>); });
  table["mad.wide." + type] = applied([](T a, T b, Wide c) {
    return static_cast<Wide>(static_cast<Unsigned<Wide>>(Wide{a} * Wide{b}) + static_cast<Unsigned<Wide>>(c));
  });
  table["mad.hi." + type] = applied([](T a, T b, T c) { return static_cast<T>((Wide{a} * Wide{b} >> kWidth<T>)+c); });
}

template <class T>
void add_bits(Table& table, const std::string& type) {
  add_selection<T>(table, type);
  table["setp.eq." + type] = applied([](T a, T b) { return a == b; });
  table["setp.ne." + type] = applied([](T a, T b) { return a != b; });
  table["and." + type] = applied([](T a, T b) { return static_cast<T>(a & b); });
  table["or." + type] = applied([](T a, T b) { return static_cast<T>(a | b); });
  table["xor." + type] = applied([](T a, T b) { return static_cast<T>(a ^ b); });
  table["not." + type] = applied([](T a) { return static_cast<T>(~a); });
  table["shl." + type] = applied([](T a, std::uint32_t b) { return shifted_left(a, b); });
  table["shr." + type] = applied([](T a, std::uint32_t b) { return shifted_right(a, b); });
  if constexpr (sizeof(T) >= 4) {
    table["popc." + type] = applied([](T a) { return static_cast<std::uint32_t>(std::popcount(a)); });
    table["clz." + type] = applied([](T a) { return static_cast<std::uint32_t>(std::countl_zero(a)); });
    table["bfi." + type] =
        applied([](T a, T b, std::uint32_t c, std::uint32_t d) { return bit_field_inserted(a, b, c, d); });
  }
}

void add_words(Table& table) {
  table["prmt.b32"] = applied([](std::uint32_t a, std::uint32_t b, std::uint32_t c) { return permuted(a, b, c); });
  table["lop3.b32"] = applied(
      [](std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) { return by_truth_table(a, b, c, d); });
  table["shf.l.wrap.b32"] = applied([](std::uint32_t low, std::uint32_t high, std::uint32_t by) {
    return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) << (by & 31) >> 32);
  });
  table["shf.r.wrap.b32"] = applied([](std::uint32_t low, std::uint32_t high, std::uint32_t by) {
    return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> (by & 31));
  });
}

void add_predicates(Table& table) {
  table["mov.pred"] = applied([](bool a) { return a; });
  table["and.pred"] = applied([](bool a, bool b) { return a && b; });
  table["or.pred"] = applied([](bool a, bool b) { return a || b; });
  table["xor.pred"] = applied([](bool a, bool b) { return a != b; });
  table["not.pred"] = applied([](bool a) { return !a; });
}

// The names of instructions that round say how: `.rn`, to nearest. Others are unknown here, as are `fma` and `.ftz`.
template <class T>
void add_floats(Table& table, const std::string& type) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kSign = Bits{1} << (kWidth<T> - 1);
  add_comparisons<T>(table, type);
  add_selection<Bits>(table, type);
  table["setp.ne." + type] = applied([](T a, T b) { return a < b || a > b; });
  table["setp.num." + type] = applied([](T a, T b) { return a == a && b == b; });
  table["setp.nan." + type] = applied([](T a, T b) { return a != a || b != b; });
  table["setp.equ." + type] = applied([](T a, T b) { return !(a < b || a > b); });
  table["setp.neu." + type] = applied([](T a, T b) { return !(a == b); });
  table["setp.ltu." + type] = applied([](T a, T b) { return !(a >= b); });
  table["setp.leu." + type] = applied([](T a, T b) { return !(a > b); });
  table["setp.gtu." + type] = applied([](T a, T b) { return !(a <= b); });
  table["setp.geu." + type] = applied([](T a, T b) { return !(a < b); });
  table["add.rn." + type] = applied([](T a, T b) { return arithmetic(a + b); });
  table["sub.rn." + type] = applied([](T a, T b) { return arithmetic(a - b); });
  table["mul.rn." + type] = applied([](T a, T b) { return arithmetic(a * b); });
  table["div.rn." + type] = applied([](T a, T b) { return arithmetic(a / b); });
  table["rcp.rn." + type] = applied([](T a) { return arithmetic(T{1} / a); });
  table["sqrt.rn." + type] = applied([](T a) { return arithmetic(std::sqrt(a)); });
  table["min." + type] = applied([](T a, T b) { return lesser(a, b); });
  table["max." + type] = applied([](T a, T b) { return greater(a, b); });
  table["abs." + type] = applied([](Bits a) { return static_cast<Bits>(a & ~kSign); });
  table["neg." + type] = applied([](Bits a) { return static_cast<Bits>(a ^ kSign); });
}

// A value of 8 bits lies in a register of 16 and fills it.
template <class T>
using Register =
    std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, std::int16_t, std::uint16_t>, T>;

template <class To, class From>
void add_conversion(Table& table, const std::string& to, const std::string& from) {
  table["cvt." + to + "." + from] =
      applied([](Register<From> a) { return Register<To>{static_cast<To>(static_cast<From>(a))}; });
}

template <class To>
void add_conversions_to(Table& table, const std::string& to) {
  add_conversion<To, std::int8_t>(table, to, "s8");
  add_conversion<To, std::uint8_t>(table, to, "u8");
  add_conversion<To, std::int16_t>(table, to, "s16");
  add_conversion<To, std::uint16_t>(table, to, "u16");
  add_conversion<To, std::int32_t>(table, to, "s32");
  add_conversion<To, std::uint32_t>(table, to, "u32");
  add_conversion<To, std::int64_t>(table, to, "s64");
  add_conversion<To, std::uint64_t>(table, to, "u64");
}

template <class T>
void add_float_conversions(Table& table, const std::string& type) {
  if constexpr (sizeof(T) > 1) {
    table["cvt.rn.f32." + type] = applied([](T a) { return static_cast<float>(a); });
    table["cvt.rn.f64." + type] = applied([](T a) { return static_cast<double>(a); });
    table["cvt.rzi." + type + ".f32"] = applied([](float a) { return truncated<T>(a); });
    table["cvt.rzi." + type + ".f64"] = applied([](double a) { return truncated<T>(a); });
  }
}

template <class T>
void add_conversions(Table& table, const std::string& type) {
  add_conversions_to<T>(table, type);
  add_float_conversions<T>(table, type);
}

Table make_table() {
  Table table;
  add_integers<std::int16_t>(table, "s16");
  add_integers<std::uint16_t>(table, "u16");
  add_integers<std::int32_t>(table, "s32");
  add_integers<std::uint32_t>(table, "u32");
  add_integers<std::int64_t>(table, "s64");
  add_integers<std::uint64_t>(table, "u64");
  add_products<std::int16_t, std::int32_t>(table, "s16");
  add_products<std::uint16_t, std::uint32_t>(table, "u16");
  add_products<std::int32_t, std::int64_t>(table, "s32");
  add_products<std::uint32_t, std::uint64_t>(table, "u32");
  add_bits<std::uint16_t>(table, "b16");
  add_bits<std::uint32_t>(table, "b32");
  add_bits<std::uint64_t>(table, "b64");
  add_words(table);
  add_predicates(table);
  add_floats<float>(table, "f32");
  add_floats<double>(table, "f64");
  add_conversions<std::int8_t>(table, "s8");
  add_conversions<std::uint8_t>(table, "u8");
  add_conversions<std::int16_t>(table, "s16");
  add_conversions<std::uint16_t>(table, "u16");
  add_conversions<std::int32_t>(table, "s32");
  add_conversions<std::uint32_t>(table, "u32");
  add_conversions<std::int64_t>(table, "s64");
  add_conversions<std::uint64_t>(table, "u64");
  table["cvt.rn.f32.f64"] = applied([](double a) { return arithmetic(static_cast<float>(a)); });
  table["cvt.f64.f32"] = applied([](float a) { return arithmetic(static_cast<double>(a)); });
  table["cvt.f32.f16"] = applied([](std::uint16_t a) { return from_half(a); });
  table["cvt.rn.f16.f32"] = applied([](float a) { return to_half(a); });
  table["cvta.to.shared.u64"] = applied([](std::uint64_t a) { return in_shared(a); });
  table["cvta.to.global.u64"] = applied([](std::uint64_t a) { return a; });
  table["cvta.shared.u64"] = applied([](std::uint64_t a) { return a | kSharedWindow; });
  table["cvta.local.u64"] = applied([](std::uint64_t a) { return a | kLocalWindow; });
  table["cvta.param.u64"] = applied([](std::uint64_t a) { return a | kParameterWindow; });
  return table;
}

// ---- what lanes do together

enum class Shuffle { butterfly, index, up, down };

// The lane that gives its value to `lane`; itself, and not `is_inside`, if there is none in its segment.
int shuffled_from(Shuffle kind, int lane, std::uint32_t by, std::uint32_t clamp, bool& is_inside) {
  const auto segment = static_cast<int>(clamp >> 8 & 0x1F);
  const int first = lane & segment;
  const int last = first | (static_cast<int>(clamp & 0x1F) & ~segment);
  const int step = static_cast<int>(by & 0x1F);
  int from = lane;
  switch (kind) {
    case Shuffle::butterfly: from = lane ^ step; break;
    case Shuffle::index: from = first | (step & ~segment); break;
    case Shuffle::up: from = lane - step; break;
    case Shuffle::down: from = lane + step; break;
  }
  is_inside = kind == Shuffle::up ? from >= last : from <= last;
  return is_inside ? from : lane;
}

template <Shuffle kKind>
void shuffle(Warp& warp, const Instruction& instruction, Mask lanes) {
  auto* const target = warp.at<std::uint32_t>(instruction.operands[0]);
  auto* const inside = warp.at<Mask>(instruction.operands[1]);
  const auto* const by = warp.at<std::uint32_t>(instruction.operands[3]);
  const auto* const clamp = warp.at<std::uint32_t>(instruction.operands[4]);
  std::array<std::uint32_t, kLanes> before{};
  std::copy_n(warp.at<std::uint32_t>(instruction.operands[2]), kLanes, before.begin());
  for (Mask left = lanes; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    bool is_inside = false;
    const int from = shuffled_from(kKind, lane, by[lane], clamp[lane], is_inside);
    if ((lanes >> from & 1) == 0) throw Fault("a shuffle from lane " + std::to_string(from) + ", which is not there");
    target[lane] = before[static_cast<std::size_t>(from)];
    *inside = (*inside & ~(Mask{1} << lane)) | static_cast<Mask>(is_inside) << lane;
  }
}

enum class Vote { any, all };

template <Vote kVote>
void vote(Warp& warp, const Instruction& instruction, Mask lanes) {
  const Mask votes = *warp.at<Mask>(instruction.operands[1]) & lanes;
  Mask& target = *warp.at<Mask>(instruction.operands[0]);
  const bool result = kVote == Vote::any ? votes != 0 : votes == lanes;
  target = (target & ~lanes) | (result ? lanes : 0);
}

void ballot(Warp& warp, const Instruction& instruction, Mask lanes) {
  const Mask votes = *warp.at<Mask>(instruction.operands[1]) & lanes;
  auto* const target = warp.at<std::uint32_t>(instruction.operands[0]);
  for_lanes(lanes, [&](int lane) { target[lane] = votes; });
}

Table make_meetings() {
  const std::vector<int> shuffled = {32, 1, 32, 32, 32};
  return {{"shfl.sync.bfly.b32", {shuffle<Shuffle::butterfly>, shuffled}},
          {"shfl.sync.idx.b32", {shuffle<Shuffle::index>, shuffled}},
          {"shfl.sync.up.b32", {shuffle<Shuffle::up>, shuffled}},
          {"shfl.sync.down.b32", {shuffle<Shuffle::down>, shuffled}},
          {"vote.sync.any.pred", {vote<Vote::any>, {1, 1}}},
          {"vote.sync.all.pred", {vote<Vote::all>, {1, 1}}},
          {"vote.sync.ballot.b32", {ballot, {32, 1}}},
          {"bar.warp.sync", {[](Warp&, const Instruction&, Mask) {}, {}}}};
}

const Form* find(const Table& table, const std::string& name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

// ---- loads, stores and moves of parts

template <class T, class R>
void load(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::size_t count = instruction.vector;
  for_lanes(lanes, [&](int lane) {
    const std::byte* const from = warp.locate(instruction, lane, count * sizeof(T), false);
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      warp.at<R>(instruction.operands[i + 1])[lane] = static_cast<R>(value);
    }
  });
}

template <class T, class R>
void store(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::size_t count = instruction.vector;
  for_lanes(lanes, [&](int lane) {
    std::byte* const to = warp.locate(instruction, lane, count * sizeof(T), true);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<T>(warp.at<R>(instruction.operands[i + 1])[lane]);
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  });
}

template <class T>
Operation access_of(bool loads, int width) {
  switch (width) {
    case 16: return loads ? load<T, std::uint16_t> : store<T, std::uint16_t>;
    case 32: return loads ? load<T, std::uint32_t> : store<T, std::uint32_t>;
    case 64: return loads ? load<T, std::uint64_t> : store<T, std::uint64_t>;
    default: return nullptr;
  }
}

template <class Whole, class Part>
void pack(Warp& warp, const Instruction& instruction, Mask lanes) {
  auto* const target = warp.at<Whole>(instruction.operands[0]);
  for_lanes(lanes, [&](int lane) {
    Whole whole = 0;
    for (std::size_t i = 0; i < instruction.vector; ++i) {
      whole |= static_cast<Whole>(warp.at<Part>(instruction.operands[i + 1])[lane]) << (kWidth<Part> * i);
    }
    target[lane] = whole;
  });
}

template <class Whole, class Part>
void unpack(Warp& warp, const Instruction& instruction, Mask lanes) {
  const auto* const source = warp.at<Whole>(instruction.operands[instruction.vector]);
  for_lanes(lanes, [&](int lane) {
    const Whole whole = source[lane];
    for (std::size_t i = 0; i < instruction.vector; ++i) {
      warp.at<Part>(instruction.operands[i])[lane] = static_cast<Part>(whole >> (kWidth<Part> * i));
    }
  });
}

}  // namespace

const Form* find_operation(const std::string& name) {
  static const Table* const kTable = new Table(make_table());
  return find(*kTable, name);
}

const Form* find_meeting(const std::string& name) {
  static const Table* const kTable = new Table(make_meetings());
  return find(*kTable, name);
}

Operation find_access(bool loads, const std::string& type, int width) {
  if (type == "s8") return access_of<std::int8_t>(loads, width);
  if (type == "s16") return access_of<std::int16_t>(loads, width);
  if (type == "s32") return access_of<std::int32_t>(loads, width);
  if (type == "u8" || type == "b8") return access_of<std::uint8_t>(loads, width);
  if (type == "u16" || type == "b16") return access_of<std::uint16_t>(loads, width);
  if (type == "u32" || type == "b32" || type == "f32") return access_of<std::uint32_t>(loads, width);
  if (type == "u64" || type == "b64" || type == "s64" || type == "f64") return access_of<std::uint64_t>(loads, width);
  return nullptr;
}

// In halves, or a word of 64 bits in quarters.
Operation packing(int width) {
  return width == 32 ? pack<std::uint32_t, std::uint16_t> : pack<std::uint64_t, std::uint32_t>;
}
Operation unpacking(int width) {
  return width == 32 ? unpack<std::uint32_t, std::uint16_t> : unpack<std::uint64_t, std::uint32_t>;
}

}  // namespace qccl::ptx
