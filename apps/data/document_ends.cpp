// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iostream>
#include <ostrakon/base/format.hpp>

#include "commands.hpp"

namespace ostrakon::apps::data_program {
namespace {

/// Documents that are looked at, as each takes a read.
constexpr std::int64_t most_documents = 10000;

/// Documents by how often a token is at their end: never, once, or more often.
using Counts = std::array<std::int64_t, 3>;

Counts count_at_ends(const data::TokenFile& file, std::int64_t token, bool at_begin,
                     std::int64_t documents) {
  Counts counts{};
  for (std::int64_t document = 0; document < documents; ++document) {
    const data::TokenFile::Range range = file.document(document);
    const std::int64_t length = std::min<std::int64_t>(range.end - range.begin, 2);
    std::array<std::int32_t, 2> ids{};
    file.read(at_begin ? range.begin : range.end - length, length, ids.data());
    if (!at_begin) std::reverse(ids.begin(), ids.begin() + length);
    std::size_t times = 0;
    while (times < static_cast<std::size_t>(length) && ids[times] == token) ++times;
    ++counts[times];
  }
  return counts;
}

void print_at_ends(const data::TokenFile& file, std::int64_t token, bool at_begin) {
  const std::int64_t all = file.info().document_count, documents = std::min(all, most_documents);
  const Counts counts = count_at_ends(file, token, at_begin, documents);
  std::cout << (at_begin ? "  begin with    " : "  end with      ") << "token " << token << ": ";
  constexpr std::array<const char*, 3> times = {"never", "once", "more than once"};
  const char* between = "";
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (counts[i] == 0) continue;
    std::cout << between << times[i] << " in " << format_count(counts[i]);
    between = ", ";
  }
  std::cout << (documents < all ? " of the first " : " of ") << format_count(documents)
            << (documents == 1 ? " document\n" : " documents\n");
  if (counts[2] > 0)
    warn(text(counted(counts[2], "document"), at_begin ? " begin" : " end",
              counts[2] == 1 ? "s" : "", " with token ", token,
              " more than once: perhaps the text had it already; see --begin and --end of build"));
}

}  // namespace

void print_document_ends(const data::TokenFile& file) {
  const data::TokenFileInfo& info = file.info();
  if (!info.missing_filter.empty()) return;
  if (info.document_begin) print_at_ends(file, *info.document_begin, true);
  if (info.document_end) print_at_ends(file, *info.document_end, false);
}

}  // namespace ostrakon::apps::data_program
