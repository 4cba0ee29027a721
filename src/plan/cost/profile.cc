#include "plan/cost/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace qccl::plan {
namespace {

// A number of the profile with its key; the key names the unit.
struct Entry {
  std::string_view key;
  double unit;
  double* (*field)(Profile&);
};

constexpr std::array kEntries = {
    Entry{"shm.latency_us", 1e-6, [](Profile& p) { return &p.shm.latency; }},
    Entry{"shm.frame_us", 1e-6, [](Profile& p) { return &p.shm.frame_seconds; }},
    Entry{"shm.rank_GBps", 1e9, [](Profile& p) { return &p.shm.rank_rate; }},
    Entry{"loopback.latency_us", 1e-6, [](Profile& p) { return &p.loopback.latency; }},
    Entry{"loopback.frame_us", 1e-6, [](Profile& p) { return &p.loopback.frame_seconds; }},
    Entry{"loopback.rank_GBps", 1e9, [](Profile& p) { return &p.loopback.rank_rate; }},
    Entry{"wire.latency_us", 1e-6, [](Profile& p) { return &p.wire.latency; }},
    Entry{"wire.frame_us", 1e-6, [](Profile& p) { return &p.wire.frame_seconds; }},
    Entry{"wire.rank_GBps", 1e9, [](Profile& p) { return &p.wire.rank_rate; }},
    Entry{"wire.host_Gbps", 125e6, [](Profile& p) { return &p.wire_rate; }},
    Entry{"inside_Gbps", 125e6, [](Profile& p) { return &p.inside.rank_rate; }},
    Entry{"inside.latency_us", 1e-6, [](Profile& p) { return &p.inside.latency; }},
    Entry{"site_Gbps", 125e6, [](Profile& p) { return &p.site_rate; }},
    Entry{"copy_GBps", 1e9, [](Profile& p) { return &p.copy_rate; }},
    Entry{"add_GBps", 1e9, [](Profile& p) { return &p.add_rate; }},
};

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string_view next_word(std::string_view& line) {
  const auto end = std::min(line.find_first_of(kBlank), line.size());
  const std::string_view word = line.substr(0, end);
  line = trimmed(line.substr(end));
  return word;
}

// -1 unless the text is a finite number of at least 0.
double number(std::string_view text) {
  const double value = parse_number<double>(text).value_or(-1);
  return value >= 0 && value < 1e15 ? value : -1;
}

// "minmax:bits=4 ENCODE DECODE"
bool read_codec(Profile& profile, std::string_view value) {
  CodecSpeed speed;
  speed.codec = next_word(value);
  const double encode = number(next_word(value));
  const double decode = number(value);
  speed.encode_rate = encode * 1e9;
  speed.decode_rate = decode * 1e9;
  speed.is_typical = speed.codec.find("entropy=") == std::string::npos;
  if (speed.codec.empty() || encode <= 0 || decode <= 0) return false;
  std::erase_if(profile.codecs, [&](const CodecSpeed& known) { return known.codec == speed.codec; });
  profile.codecs.push_back(std::move(speed));
  return true;
}

bool read_line(Profile& profile, std::string_view line) {
  const std::string_view key = next_word(line);
  if (key == "machine") {
    profile.machine = line;
    return true;
  }
  if (key == "codec_GBps") return read_codec(profile, line);
  const auto* entry = std::ranges::find(kEntries, key, &Entry::key);
  const double value = number(line);
  if (entry == kEntries.end() || value < 0) return false;
  *entry->field(profile) = value * entry->unit;
  return true;
}

}  // namespace

CodecSpeed Profile::speed_of(std::string_view codec) const {
  CodecSpeed found{std::string(codec), 0, 0};
  if (codec == "none" || codecs.empty()) return found;
  std::size_t longest = 0;
  CodecSpeed slowest = codecs.front();
  for (const CodecSpeed& known : codecs) {
    if (known.is_typical) {
      slowest.encode_rate = std::min(slowest.encode_rate, known.encode_rate);
      slowest.decode_rate = std::min(slowest.decode_rate, known.decode_rate);
    }
    if (!codec.starts_with(known.codec) || known.codec.size() < longest) continue;
    longest = known.codec.size();
    found = known;
  }
  return longest > 0 ? found : slowest;
}

const Profile& default_profile() {
  static const Profile measured{
      .machine = "Intel Xeon (Sapphire Rapids), 2 cores",
      .shm = {1.1e-6, 0.48e-6, 24e9},
      .loopback = {4.3e-6, 3e-6, 8e9},
      .wire = {30e-6, 5e-6, 6.5e9},  // an interface costs more than loopback; only its latency is assumed
      .inside = {20e-6, 0, 0},
      .wire_rate = 1.25e9,
      .copy_rate = 26e9,
      .add_rate = 12e9,
      .codecs = {{"cast", 21e9, 50e9},
                 {"minmax", 18e9, 48e9},
                 // Measured on an EPYC (Zen 3).
                 {"grid", 12e9, 12e9, false},
                 {"grid:entropy=rans", 1.1e9, 1.6e9, false}}};
  return measured;
}

Result<Profile> parse_profile(std::string_view text) {
  Profile profile = default_profile();
  for (int number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty() || read_line(profile, line)) continue;
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("line {} of the profile is not understood: \"{}\"", number, line));
  }
  return profile;
}

std::string to_text(const Profile& profile) {
  Profile copy = profile;
  std::string text = fmt::format("machine {}\n", profile.machine);
  for (const Entry& entry : kEntries) text += fmt::format("{} {:.4g}\n", entry.key, *entry.field(copy) / entry.unit);
  for (const CodecSpeed& speed : profile.codecs) {
    text +=
        fmt::format("codec_GBps {} {:.4g} {:.4g}\n", speed.codec, speed.encode_rate * 1e-9, speed.decode_rate * 1e-9);
  }
  return text;
}

}  // namespace qccl::plan
