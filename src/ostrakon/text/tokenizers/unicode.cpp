// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/unicode.hpp>

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

using Range = CodePointSet::Range;

constexpr char category_names[][3] = {"Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu",
                                      "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc", "Pd", "Pe", "Pf",
                                      "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};

constexpr std::uint32_t category_runs[] = {
#include <ostrakon/text/tokenizers/unicode_categories.inc>
};

// What became a mark, a character that decomposes, or punctuation in Unicode 9.1 to 16, in the
// third list from Unicode 8.1: DerivedAge.txt, UnicodeData.txt.
const std::vector<Range> newer_marks = {
    {0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},
    {0xcf3, 0xcf3},     {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},
    {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},   {0x180f, 0x180f},
    {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0xa8ff, 0xa8ff},   {0x10d24, 0x10d27}, {0x10d69, 0x10d6d}, {0x10eab, 0x10eac},
    {0x10efc, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070},
    {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146}, {0x111c9, 0x111c9},
    {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x113b8, 0x113c0},
    {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113ca}, {0x113cc, 0x113d0},
    {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x1145e, 0x1145e}, {0x1182c, 0x1183a},
    {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193b, 0x1193e}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119d1, 0x119d7}, {0x119da, 0x119e0}, {0x119e4, 0x119e4},
    {0x11a01, 0x11a0a}, {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47},
    {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a},
    {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47}, {0x11d8a, 0x11d8e},
    {0x11d90, 0x11d91}, {0x11d93, 0x11d97}, {0x11ef3, 0x11ef6}, {0x11f00, 0x11f01},
    {0x11f03, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42}, {0x11f5a, 0x11f5a},
    {0x13440, 0x13440}, {0x13447, 0x13455}, {0x1611e, 0x1612f}, {0x16f4f, 0x16f4f},
    {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d},
    {0x1cf30, 0x1cf46}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}};
const std::vector<Range> newer_decompositions = {
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xab69, 0xab69},   {0x105c9, 0x105c9},
    {0x105e4, 0x105e4}, {0x10781, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
    {0x11383, 0x11383}, {0x11385, 0x11385}, {0x1138e, 0x1138e}, {0x11391, 0x11391},
    {0x16d68, 0x16d6a}, {0x1ccd6, 0x1ccf9}, {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c},
    {0x1fbf0, 0x1fbf9}};
const std::vector<Range> newer_punctuation = {
    {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},
    {0xc84, 0xc84},     {0x1b4e, 0x1b4f},   {0x1b7d, 0x1b7f},   {0x2e43, 0x2e4f},
    {0x2e52, 0x2e5d},   {0x10d6e, 0x10d6e}, {0x10ead, 0x10ead}, {0x10f55, 0x10f59},
    {0x10f86, 0x10f89}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8}, {0x1144b, 0x1144f},
    {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
    {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
    {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11be1, 0x11be1},
    {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f},
    {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16d6d, 0x16d6f}, {0x16e97, 0x16e9a},
    {0x16fe2, 0x16fe2}, {0x1e5ff, 0x1e5ff}, {0x1e95e, 0x1e95f}};

/// Upper case that Unicode 15 to 17 have added, where lower case follows in a run at a distance.
struct NewerUpperCase {
  std::uint32_t first, last, lower;
};
constexpr NewerUpperCase newer_upper_case[] = {
    {0x1c89, 0x1c89, 0x1c8a},   {0xa7cb, 0xa7cb, 0x264},  {0xa7cc, 0xa7cc, 0xa7cd},
    {0xa7ce, 0xa7ce, 0xa7cf},   {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
    {0xa7da, 0xa7da, 0xa7db},   {0xa7dc, 0xa7dc, 0x19b},  {0x10d50, 0x10d65, 0x10d70},
    {0x16ea0, 0x16eb8, 0x16ebb}};

CodePointSet categories(const std::vector<std::string>& names) {
  CodePointSet set;
  for (const std::string& name : names) set.add(*category(name));
  return set;
}

}  // namespace

CodePointSet::CodePointSet(const std::vector<Range>& ranges) : CodePointSet() {
  for (const Range& range : ranges) add(range);
}

void CodePointSet::add(const Range& range) {
  for (std::uint32_t code_point = range.first; code_point <= range.second; ++code_point)
    bits_[code_point / 64] |= std::uint64_t{1} << (code_point % 64);
}

void CodePointSet::add(const CodePointSet& other) {
  for (std::size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
}

void CodePointSet::remove(const CodePointSet& other) {
  for (std::size_t i = 0; i < bits_.size(); ++i) bits_[i] &= ~other.bits_[i];
}

bool CodePointSet::empty() const {
  return std::all_of(bits_.begin(), bits_.end(), [](std::uint64_t bits) { return bits == 0; });
}

std::vector<Range> CodePointSet::ranges() const {
  std::vector<Range> found;
  for (std::uint32_t code_point = 0; code_point < end; ++code_point) {
    if (code_point == 0xd800) code_point = 0xe000;
    if (!contains(code_point)) continue;
    const std::uint32_t first = code_point;
    while (code_point + 1 != end && code_point + 1 != 0xd800 && contains(code_point + 1))
      ++code_point;
    found.emplace_back(first, code_point);
  }
  return found;
}

std::optional<CodePointSet> category(const std::string& name) {
  CodePointSet set;
  bool known = false;
  const auto belongs = [&](std::uint32_t run) {
    return name.compare(0, 2, category_names[run % 32], name.size()) == 0;
  };
  if (name.empty() || name.size() > 2) return std::nullopt;
  for (const auto* run = std::begin(category_runs); run != std::end(category_runs); ++run) {
    if (!belongs(*run)) continue;
    known = true;
    const std::uint32_t next = run + 1 == std::end(category_runs) ? CodePointSet::end : run[1] / 32;
    set.add({*run / 32, next - 1});
  }
  if (!known) return std::nullopt;
  return set;
}

const CodePointSet& white_space() {
  static const CodePointSet set({{0x9, 0xd},
                                 {0x20, 0x20},
                                 {0x85, 0x85},
                                 {0xa0, 0xa0},
                                 {0x1680, 0x1680},
                                 {0x2000, 0x200a},
                                 {0x2028, 0x2029},
                                 {0x202f, 0x202f},
                                 {0x205f, 0x205f},
                                 {0x3000, 0x3000}});
  return set;
}

const CodePointSet& word_characters() {
  static const CodePointSet set = [] {
    CodePointSet word = categories({"L", "M", "Nl", "Nd", "Pc"});
    // Symbols that are alphabetic, and joiners: PropList.txt.
    word.add(CodePointSet({{0x200c, 0x200d},
                           {0x24b6, 0x24e9},
                           {0x1f130, 0x1f149},
                           {0x1f150, 0x1f169},
                           {0x1f170, 0x1f189}}));
    return word;
  }();
  return set;
}

const CodePointSet& numeric() {
  static const CodePointSet set = [] {
    CodePointSet numbers = categories({"N"});
    numbers.add(CodePointSet({{0x11de0, 0x11de9}, {0x16ff4, 0x16ff6}}));  // since Unicode 17
    return numbers;
  }();
  return set;
}

const CodePointSet& punctuation() {
  static const CodePointSet set = [] {
    CodePointSet marks = categories({"P"});
    marks.remove(CodePointSet(newer_punctuation));
    marks.add(CodePointSet({{0x21, 0x2f}, {0x3a, 0x40}, {0x5b, 0x60}, {0x7b, 0x7e}}));
    marks.add(CodePointSet({{0x111c9, 0x111c9}, {0x166d, 0x166d}}));  // no longer since 11 and 12
    return marks;
  }();
  return set;
}

const CodePointSet& combining_marks() {
  static const CodePointSet set = [] {
    CodePointSet marks = categories({"M"});
    marks.remove(CodePointSet(newer_marks));
    marks.add({0x1cf2, 0x1cf3});  // letters since Unicode 12
    return marks;
  }();
  return set;
}

const CodePointSet& unknown_to_normal_forms() {
  static const CodePointSet set = [] {
    CodePointSet unknown = categories({"Cn"});
    unknown.add(CodePointSet(newer_marks));
    unknown.add(CodePointSet(newer_decompositions));
    return unknown;
  }();
  return set;
}

void append_lower_case(std::uint32_t code_point, std::string& text) {
  static const CodePointSet unassigned = categories({"Cn"});
  if (code_point < 0x80) {
    text +=
        static_cast<char>(code_point >= 'A' && code_point <= 'Z' ? code_point + 0x20 : code_point);
    return;
  }
  if (code_point == 0x130) {  // the only one whose lower case is two characters
    text += "i\u0307";
    return;
  }
  for (const NewerUpperCase& run : newer_upper_case)
    if (code_point >= run.first && code_point <= run.last)
      return append_utf8(code_point - run.first + run.lower, text);
  const bool known = !unassigned.contains(code_point);
  append_utf8(known ? static_cast<std::uint32_t>(
                          utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)))
                    : code_point,
              text);
}

}  // namespace ostrakon::texts
