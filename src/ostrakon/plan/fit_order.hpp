// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/fit.hpp>

namespace ostrakon::plan {

// These say which of two candidates that fit comes first, and which is not worth a line, as
// Fits::best says.

/// Estimates whose ratio is less mean the same: then the smaller arena is better.
constexpr double same_time = 1.001;

/// Whether `a` comes before `b` in a list.
bool is_better(const Fit& a, const Fit& b);

/// By more than `small_difference`.
bool is_faster(double seconds, const Fit& than);

/// Whether `fit`, which takes no less time than `other`, has nothing for which one would choose it:
/// it needs no noticeably smaller arena, on the device or on the host, nor does it keep the bits of
/// one rank where `other` loses them.
bool is_needless(const Fit& fit, const Fit& other);

}  // namespace ostrakon::plan
