// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/evaluate/windows.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>

namespace ostrakon::evaluate {

std::vector<Window> windows(std::int64_t count, std::int64_t first, std::int64_t context,
                            std::int64_t stride) {
  require(first >= 1, "tokens are predicted from token ", first, " on; expected 1 or more");
  require(stride >= 1 && stride <= context, "a stride of ", stride, " tokens; expected 1 to ",
          context, ", the length of the context");
  std::vector<Window> all;
  std::int64_t end = std::min(count, std::max(context + 1, first + stride));
  for (std::int64_t at = first; at < count; at = end, end = std::min(count, end + stride))
    all.push_back({std::max<std::int64_t>(0, end - context - 1), at, end});
  return all;
}

}  // namespace ostrakon::evaluate
