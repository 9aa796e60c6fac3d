// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon {

/// Advises the system to back untouched memory with huge pages, where whole ones fit in [data, data
/// + bytes); this reduces TLB misses. The system may do so at once, later or never. Does nothing on
/// systems without such advice.
void advise_huge_pages(void* data, std::int64_t bytes);

/// Whether the system's settings forbid huge pages, or it has none.
bool forbids_huge_pages();

/// Describes the pages of private memory after advise_huge_pages(), from
/// /sys/kernel/mm/transparent_hugepage: "2 MiB where the system finds them", or "4 KiB: ..." and
/// the reason.
std::string describe_pages();

}  // namespace ostrakon
