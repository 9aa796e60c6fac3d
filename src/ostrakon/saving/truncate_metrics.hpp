// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon::train {

/// Removes rows of steps after `last` from a metrics file, and adds a missing end of the last line.
/// All other lines stay, even if they are not rows. Only a last line that was cut off is judged by
/// the step that it begins with, and removed if even that is incomplete. Rows at the end are cut
/// off in place; if other lines follow them, the file is written anew and replaced once that is on
/// disk. Throws Error, naming the path and the reason; nothing is lost then.
void truncate_metrics_after(const std::string& path, std::int64_t last);

}  // namespace ostrakon::train
