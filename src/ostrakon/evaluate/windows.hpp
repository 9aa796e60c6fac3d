// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::evaluate {

/// Tokens [begin, end) of a sequence, which are one sample: those from `first` on are predicted,
/// each from all between `begin` and itself. begin < first < end.
struct Window {
  std::int64_t begin = 0, first = 1, end = 1;
};

/// Returns windows in which each of the tokens [first, count) of a sequence is predicted once, in
/// their order. A window has at most `context` + 1 tokens: a model reads all but the last. The
/// first window predicts as many as fit behind the tokens before `first`, at least `stride`; each
/// further one predicts `stride` more, or the rest, and reads as many before them as fit, so that
/// with a smaller stride tokens are predicted from more. With `stride` = `context` and first = 1
/// these are the windows of lm-evaluation-harness (loglikelihood_rolling). Throws Error unless 1 <=
/// first, and 1 <= stride <= context.
std::vector<Window> windows(std::int64_t count, std::int64_t first, std::int64_t context,
                            std::int64_t stride);

}  // namespace ostrakon::evaluate
