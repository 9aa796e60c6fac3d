// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::math {

/// Whether hipBLASLt's solution of this name adds the terms of all rows of C (row-major) in one
/// order, however many rows there are: the library has no setting for this, but its names list how
/// a kernel is made, as "..._GSU1_GSUAMB_..._SU32_SUM0_SUS256_..._SK0_...". Refused are
/// - GSU<n>, n > 1: the terms are divided over n groups of threads (global split U);
/// - SK<n>, n > 0: groups of threads get equal shares of all terms (stream-K);
/// - SU<n>, n > 0, unless with SUM0: groups begin at different terms (stagger U). SUM0 says that
///   where one begins follows from its tile of columns, so rows are alike; others count rows, too.
/// What a name does not list is taken as off: then only the comparison of choose_algorithm() finds
/// it.
bool adds_alike_in_all_rows(const std::string& solution);

}  // namespace ostrakon::math
