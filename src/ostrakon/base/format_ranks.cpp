// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/format_ranks.hpp>

#include <cstddef>
#include <ostrakon/base/text.hpp>

namespace ostrakon {

std::string format_ranks(const std::vector<int>& ranks) {
  std::string list;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    list += text(list.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) list += text("-", ranks[end - 1]);
    i = end;
  }
  return text(ranks.size() == 1 ? "rank " : "ranks ", list);
}

}  // namespace ostrakon
