// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon {

/// Asks the system to back memory that nothing has been written to yet with huge pages, where whole
/// ones fit in [data, data + bytes): it may do so, now or never. Fewer pages are fewer misses of
/// the processor's address cache. Nothing is done where the system knows no such wish.
void ask_for_huge_pages(void* data, std::int64_t bytes);

/// Whether the system's users want no huge pages at all, or it has none.
bool forbids_huge_pages();

/// "2 MiB where the system finds them", or "4 KiB: ..." with why: what private memory of a process
/// has after that call, by /sys/kernel/mm/transparent_hugepage.
std::string describe_pages();

}  // namespace ostrakon
