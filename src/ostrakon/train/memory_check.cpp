// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/train/memory_check.hpp>

namespace ostrakon::train {

std::string what_does_not_fit(const std::vector<MemoryNeed>& needs, int ranks) {
  for (const MemoryNeed& need : needs) {
    const std::int64_t all = ranks * (need.planned + need.process);
    if (all <= need.available) continue;
    const std::string planned = format_bytes(need.planned) + " planned" + need.where;
    return text(ranks, ranks == 1 ? " rank" : " ranks", " on this host x ",
                need.process > 0
                    ? text("(", planned, " + ", format_bytes(need.process), " for the process)")
                    : planned,
                " = ", format_bytes(all), ", but ", format_bytes(need.available), " are available");
  }
  return "";
}

}  // namespace ostrakon::train
