// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/regex.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <map>
#include <mutex>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>

namespace ostrakon::texts {
namespace {

struct FreeRegexCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using RegexCode = std::unique_ptr<pcre2_code, FreeRegexCode>;

std::string reason_of_pcre2(int code) {
  std::array<PCRE2_UCHAR, 256> message{};
  pcre2_get_error_message(code, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

RegexCode compile_regex(const std::string& regex) {
  // The newline of Oniguruma; PCRE2 has what it was built with.
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  RegexCode code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                               PCRE2_UTF | PCRE2_UCP, &error, &at, context));
  pcre2_compile_context_free(context);
  require(code != nullptr, "PCRE2 can't take it: ", reason_of_pcre2(error));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without it the same matches, slowly
  return code;
}

/// What a thread matches with: all patterns of it need the whole match alone.
class RegexWorkspace {
 public:
  RegexWorkspace() {
    constexpr std::size_t first_stack = 1 << 16, largest_stack = 1 << 26;  // bytes
    data = pcre2_match_data_create(1, nullptr);
    context = pcre2_match_context_create(nullptr);
    stack = pcre2_jit_stack_create(first_stack, largest_stack, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, 1U << 31);
  }
  RegexWorkspace(const RegexWorkspace&) = delete;
  RegexWorkspace& operator=(const RegexWorkspace&) = delete;
  ~RegexWorkspace() {
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
  }
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

void find_all(const pcre2_code* code, std::string_view text, std::uint32_t offset,
              std::vector<Span>& matches) {
  static thread_local RegexWorkspace workspace;
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(workspace.data);
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t jit_bytes = 0;
  pcre2_pattern_info(code, PCRE2_INFO_JITSIZE, &jit_bytes);
  const auto match = jit_bytes != 0 ? &pcre2_jit_match : &pcre2_match;
  for (std::size_t at = 0; at < text.size(); at = range[1]) {
    const int found = match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, workspace.data,
                            workspace.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    require(found >= 0, "a regular expression of the tokenizer can't be matched against a text of ",
            text.size(), " bytes: ", reason_of_pcre2(found));
    matches.push_back({static_cast<std::uint32_t>(offset + range[0]),
                       static_cast<std::uint32_t>(offset + range[1])});
  }
}

class RegexPattern : public Pattern {
 public:
  explicit RegexPattern(const std::string& regex) : code_(compile_regex(regex)) {
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    require(matches_empty == 0, "it matches empty text");
  }
  void find(std::string_view text, std::uint32_t offset,
            std::vector<Span>& matches) const override {
    find_all(code_.get(), text, offset, matches);
  }

 private:
  RegexCode code_;
};

/// The characters that PCRE2 takes for those of a general category.
CodePointSet category_of_pcre2(const std::string& name) {
  static const std::string all = [] {
    std::string characters;
    for (std::uint32_t code_point = 0; code_point < CodePointSet::end; ++code_point)
      if (code_point < 0xd800 || code_point > 0xdfff) append_utf8(code_point, characters);
    return characters;
  }();
  std::vector<Span> runs;
  find_all(compile_regex("\\p{" + name + "}+").get(), all, 0, runs);
  CodePointSet set;
  for (const Span& run : runs) {
    const std::string_view characters(all.data() + run.begin, run.end - run.begin);
    const std::uint32_t first = code_point(characters, 0);
    const std::uint32_t last = code_point(characters, last_character(characters));
    // Surrogates are between the characters before and after them, but in no text.
    set.add({first, last});
  }
  return set;
}

}  // namespace

std::string character_for_pcre2(std::uint32_t code_point) {
  constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  for (std::uint32_t rest = code_point; rest != 0 || hex.empty(); rest /= 16)
    hex.insert(hex.begin(), digits[rest % 16]);
  return "\\x{" + hex + "}";
}

std::string ranges_for_pcre2(const CodePointSet& set) {
  std::string inside;
  for (const auto& [first, last] : set.ranges()) {
    inside += character_for_pcre2(first);
    if (last != first) inside += "-" + character_for_pcre2(last);
  }
  return inside;
}

std::string class_for_pcre2(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  const auto ours = category(name);
  require(ours.has_value(), "the property ", shown(name), " is not implemented");
  const CodePointSet theirs = category_of_pcre2(name);
  CodePointSet missing = *ours, surplus = theirs;
  missing.remove(theirs);
  surplus.remove(*ours);
  // A newer PCRE2 has characters that Oniguruma does not know: they can't be taken out of a class.
  const bool grows = surplus.empty();
  return known[name] =
             grows ? "\\p{" + name + "}" + ranges_for_pcre2(missing) : ranges_for_pcre2(*ours);
}

std::unique_ptr<Pattern> regex_pattern(const std::string& regex) {
  return std::make_unique<RegexPattern>(regex_for_pcre2(regex));
}

}  // namespace ostrakon::texts
