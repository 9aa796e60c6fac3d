// SPDX-License-Identifier: Apache-2.0
#pragma once

// Trials of a library's attention beside own kernels, before it is used: on random numbers, which
// overwrite the arrays.

#include <functional>
#include <ostrakon/math/attention/attention_library.hpp>
#include <string>

namespace ostrakon::math {

/// Returns "backward, heads of 64, window 128".
std::string describe_attention(const AttentionShape& shape, AttentionPass pass);

template <class T>
struct ForwardArrays {
  View<const T**> qkv;
  View<T**> out;
  View<float*> log_sum_exp;
};
template <class T>
struct BackwardArrays {
  View<const T**> dout;
  View<T**> dqkv;
};

/// Computes with the library the part of `shape` that begins with this sequence and head of keys,
/// and returns why it can't; empty: it has.
using ComputePart = std::function<std::string(const AttentionShape& part, std::int64_t sequence,
                                              std::int64_t kv_head)>;

/// Returns why the library must not compute this forward: it refuses, it has other results than own
/// kernels (by more than 16 bits make), or a sequence and head of keys has other bits alone than
/// among the others, or when it is computed again. Empty: it may. Launches own kernels, too.
template <class T>
std::string try_forward(const Exec& exec, const AttentionShape& shape,
                        const ForwardArrays<T>& arrays, View<T*> workspace,
                        const ComputePart& compute);

/// Does for backward what try_forward does. compute_all() computes all of it, as a step does.
template <class T>
std::string try_backward(const Exec& exec, const AttentionShape& shape,
                         const ForwardArrays<T>& arrays, const BackwardArrays<T>& gradients,
                         View<T*> workspace, const std::function<std::string()>& compute_all,
                         const ComputePart& compute);

}  // namespace ostrakon::math
