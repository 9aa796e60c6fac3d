// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/tokenizers/regex.hpp>
#include <ostrakon/text/tokenizers/unicode.hpp>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

using Texts = std::vector<std::string>;

Texts matches_of(const std::string& regex, const std::string& text) {
  std::vector<Span> spans;
  regex_pattern(regex)->find(text, 0, spans);
  Texts matches;
  for (const Span& span : spans) matches.push_back(text.substr(span.begin, span.end - span.begin));
  return matches;
}

// What pre_tokenizers.Split(Regex(...), "removed", invert=True) of `tokenizers` 0.23.3 leaves.
TEST(Regex, MatchesAreThoseOfOniguruma) {
  struct Row {
    const char *regex, *text;
    Texts matches;
  };
  const std::vector<Row> rows = {
      {"(?i:'s|'ve)", "a'S'\u017f'vE'VE'v", {"'S", "'\u017f", "'vE", "'VE"}},
      {"(?i:k)", "kK\u212ax", {"k", "K", "\u212a"}},
      {"\\s+",
       "a \t\302\205\u00a0\u180e\u200b\u2028\u3000b",
       {" \t\302\205\u00a0", "\u2028\u3000"}},
      {"\\S", "a \302\205\u180e", {"a", "\u180e"}},
      {"\\d{2}", "1\u0663\u06645\u00b267", {"1\u0663", "\u06645", "67"}},
      {"\\d{1,2}+", "12345a6", {"12345", "6"}},
      {"\\d{2,}?", "12345", {"12", "34"}},
      {"\\p{L}+", "a\u00e9\u1c89\U000323af\u4e2d\u0301", {"a\u00e9\u1c89\U000323af\u4e2d"}},
      {"\\p{^L}", "a1\u00e9", {"1"}},
      {"\\P{L}", "a1\u00e9", {"1"}},
      {"[^\\P{L}a]", "ab\u00e91", {"b", "\u00e9"}},
      {"\\p{Lu}\\p{Ll}", "Aa\u01c5a\u03a3\u03c3", {"Aa", "\u03a3\u03c3"}},
      {"[\\p{N}]+", "1\u00bd\u2167\U00011de0", {"1\u00bd\u2167"}},
      {"[\\s\\S]b", "ab\nb", {"ab", "\nb"}},
      {".+", "ab\ncd\r\u2028e", {"ab", "cd\r\u2028e"}},
      {"^a", "a\naba", {"a", "a"}},
      {"a$", "a\nba", {"a", "a"}},
      {"\\s+(?!\\S)", "a   b  ", {"  ", "  "}},
      {"a++b|a", "aab", {"aab"}},
      {"(?>a|ab)c", "abcac", {"ac"}},
      {"[a-c[x-z]&]+", "abxyz&d", {"abxyz&"}},
      {"[^a[bc]]+", "abcdef", {"def"}},
      {"[\\]\\-a]+", "a]-b", {"a]-"}},
      {"[a-]+", "a-b", {"a-"}},
      {"]}", "a]}", {"]}"}},
      {"\\u4e2d|\\x{e9}", "\u4e2d\u00e9", {"\u4e2d", "\u00e9"}},
      {"(ab|cd)+", "ababcdx", {"ababcd"}},
      {"a{,2}b", "aaab", {"aab"}},
      {"x*?y", "xxy", {"xxy"}},
      {"(?=a)..", "abca", {"ab"}},
      {"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
       "\u4e2da\u30a0\u3072\u9fa5\u9fa6",
       {"\u4e2d", "\u30a0\u3072\u9fa5"}},
      {"\\t|\\n|\\r|\\f|\\v", "\t\n\r\f\v", {"\t", "\n", "\r", "\f", "\v"}},
      {"'(?i:[sdmt]|ll)", "'S'\u017f'Ll'd", {"'S", "'\u017f", "'Ll", "'d"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.regex);
    EXPECT_EQ(matches_of(row.regex, row.text), row.matches);
  }
}

// Numbers of characters in the files of Unicode 16, whatever version PCRE2 knows.
TEST(Regex, PropertiesAreThoseOfUnicode16) {
  struct Row {
    const char* property;
    std::size_t characters;
  };
  for (const Row& row : {Row{"L", 141028}, Row{"Lu", 1858}, Row{"Ll", 2258}, Row{"Lt", 31},
                         Row{"Lm", 404}, Row{"Lo", 136477}, Row{"M", 2501}, Row{"N", 1911},
                         Row{"P", 855}, Row{"S", 8514}, Row{"Z", 19}}) {
    SCOPED_TRACE(row.property);
    std::size_t ours = 0;
    for (const auto& [first, last] : category(row.property)->ranges()) ours += last - first + 1;
    EXPECT_EQ(ours, row.characters);
    std::string all;
    for (std::uint32_t c = 0; c < CodePointSet::end; ++c)
      if (c < 0xd800 || c > 0xdfff) append_utf8(c, all);
    std::vector<Span> spans;
    regex_pattern(std::string("\\p{") + row.property + "}")->find(all, 0, spans);
    EXPECT_EQ(spans.size(), row.characters);
  }
}

}  // namespace
}  // namespace ostrakon::texts
