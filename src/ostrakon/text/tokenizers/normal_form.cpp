// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/normal_form.hpp>

#include <utf8proc.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/utf8.hpp>
#include <vector>

namespace ostrakon::texts {
namespace {

constexpr int not_a_boundary = 0;

utf8proc_option_t options_of(NormalForm::Kind kind) {
  using Kind = NormalForm::Kind;
  int options = kind == Kind::nfc || kind == Kind::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (kind == Kind::nfkc || kind == Kind::nfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE);
}

/// The decomposition of one character.
std::vector<utf8proc_int32_t> decomposition(std::uint32_t code_point, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> characters(32);
  int boundary = not_a_boundary;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), characters.data(),
                              static_cast<utf8proc_ssize_t>(characters.size()), options, &boundary);
  require(count >= 0 && count <= static_cast<utf8proc_ssize_t>(characters.size()),
          "utf8proc: ", utf8proc_errmsg(count));
  characters.resize(static_cast<std::size_t>(count));
  return characters;
}

/// Characters that a form may change, and those that combine with the one before them.
CodePointSet find_changes(NormalForm::Kind kind) {
  using Kind = NormalForm::Kind;
  const bool composes = kind == Kind::nfc || kind == Kind::nfkc;
  const auto options = options_of(kind);
  const auto canonical = options_of(Kind::nfd);
  CodePointSet changes;
  for (std::uint32_t code_point = 0; code_point < CodePointSet::end; ++code_point) {
    if (code_point >= 0xd800 && code_point <= 0xdfff) continue;
    const auto* const property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
    if (property->combining_class != 0) changes.add({code_point, code_point});
    const bool is_hangul = code_point >= 0xac00 && code_point <= 0xd7a3;
    if (is_hangul && composes) continue;  // unless jamo follow, which combine
    if (property->decomp_seqindex == UINT16_MAX && !is_hangul) continue;
    // What composes again to itself changes only where something combines with it.
    const auto parts = decomposition(code_point, canonical);
    auto composed = decomposition(code_point, options);
    auto count = static_cast<utf8proc_ssize_t>(composed.size());
    if (composes) count = utf8proc_normalize_utf32(composed.data(), count, options);
    const bool stays = count == 1 && composed[0] == static_cast<utf8proc_int32_t>(code_point);
    if (!stays) changes.add({code_point, code_point});
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const auto part = static_cast<std::uint32_t>(parts[i]);
      changes.add({part, part});
    }
  }
  if (composes) {  // Hangul vowels and final consonants
    changes.add({0x1161, 0x1175});
    changes.add({0x11a8, 0x11c2});  // from U+11A8: utf8proc takes U+11A7 for one, and drops it
  }
  changes.remove(unknown_to_normal_forms());
  return changes;
}

}  // namespace

NormalForm::NormalForm(Kind kind) : kind_(kind), changes_(find_changes(kind)) {}

void NormalForm::append(std::string_view part, std::string& text) const {
  const auto options = options_of(kind_);
  std::vector<utf8proc_int32_t> characters(part.size() + 8);
  const auto decompose = [&] {
    return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(part.data()),
                              static_cast<utf8proc_ssize_t>(part.size()), characters.data(),
                              static_cast<utf8proc_ssize_t>(characters.size()), options);
  };
  auto count = decompose();
  if (count > static_cast<utf8proc_ssize_t>(characters.size())) {
    characters.resize(static_cast<std::size_t>(count));
    count = decompose();
  }
  if (count > 0) count = utf8proc_normalize_utf32(characters.data(), count, options);
  require(count >= 0, "text can't be normalized: ", utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(static_cast<std::uint32_t>(characters[static_cast<std::size_t>(i)]), text);
}

void NormalForm::normalize(std::string& text) const {
  // Most text is already in the form: only runs of what may change, with the character before,
  // which may combine with them, are worked on.
  const std::string_view all = text;
  std::string changed;
  std::size_t done = 0, before = 0;  // where the last character that stays begins
  for (std::size_t at = 0; at < all.size();) {
    const std::uint32_t character = code_point(all, at);
    if (!changes_.contains(character)) {
      before = at;
      at += utf8_length(all[at]);
      continue;
    }
    const bool combines = before >= done && before < at &&
                          !unknown_to_normal_forms().contains(code_point(all, before));
    const std::size_t begin = combines ? before : at;
    while (at < all.size() && changes_.contains(code_point(all, at))) at += utf8_length(all[at]);
    changed.append(all, done, begin - done);
    append(all.substr(begin, at - begin), changed);
    done = at;
    before = at;
  }
  if (done == 0) return;
  changed.append(all, done, all.npos);
  text.swap(changed);
}

}  // namespace ostrakon::texts
