// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon::train {

/// Takes rows of steps after `last` from a file of metrics, and gives its last line an end where it
/// has none. All other lines stay, those that are no rows among them. Only a last line that was cut
/// off goes by the step that it begins with, and is removed where even that is incomplete. Rows at
/// the end are cut off in place; where others follow them the file is written anew and replaced
/// when that is on disk. Throws Error, naming the path and the reason; nothing is lost then.
void cut_metrics_after(const std::string& path, std::int64_t last);

}  // namespace ostrakon::train
