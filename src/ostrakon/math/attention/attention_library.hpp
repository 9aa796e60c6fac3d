// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention by a library of the device, which compiles a plan for each shape. It is used where
// trials at start find that it works, and that its bits depend on nothing but a query and its keys.

#include <memory>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/attention/attention.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace ostrakon::math {

/// An array of a call, in device memory: rows `stride` elements apart, a row for each token, with
/// heads side by side.
struct HeadRows {
  const void* data = nullptr;
  std::int64_t stride = 0;

  /// Returns the address for what a call writes.
  void* written() const { return const_cast<void*>(data); }
};

/// Arrays of attention of whole sequences. log_sum_exp is (batch, heads, tokens), contiguous.
struct AttentionArrays {
  HeadRows queries, keys, values, out;      ///< of forward the last one is made
  float* log_sum_exp = nullptr;             ///< made by forward
  HeadRows dout, dqueries, dkeys, dvalues;  ///< of backward: an input, and three that it makes
};

/// A workspace in device memory.
struct LibraryWorkspace {
  std::byte* data;
  std::int64_t bytes;
};

/// A library, or a double of it in tests.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;

  /// "cuDNN 9.19.0".
  virtual std::string name() const = 0;

  // These submit one call, and return an empty text; or they return why they can't compute it.
  // Plans are kept: a call with a shape, strides and dtype that were used before makes none. Of a
  // number of sequences and heads the plan is that for one of both, as far as that is possible.
  virtual std::string forward(const Exec& exec, const AttentionShape& shape, DType dtype,
                              const AttentionArrays& arrays, LibraryWorkspace workspace) = 0;
  virtual std::string backward(const Exec& exec, const AttentionShape& shape, DType dtype,
                               const AttentionArrays& arrays, LibraryWorkspace workspace) = 0;
};

/// The dtype of arrays of T; of double, which no library takes, as that of float.
template <class T>
constexpr DType library_dtype = std::is_same<T, bf16>::value   ? DType::bf16
                                : std::is_same<T, fp16>::value ? DType::fp16
                                                               : DType::fp32;

/// Makes the library of the device; null without one.
std::unique_ptr<AttentionLibrary> make_attention_library();

/// The library that calls use: the device's, or another one. Null: none.
AttentionLibrary* attention_library();
void use_attention_library(std::unique_ptr<AttentionLibrary> library);

// What follows depends on the shape and the form of kernels alone, so plans can be made anywhere.

/// Returns why a library does not compute attention of this shape, whatever shape.library says;
/// empty if it may: "heads of 60; expected multiples of 8 from 64 to 256".
std::string why_not_by_library(const AttentionShape& shape, DType dtype, KernelForm form);

enum class AttentionPass { forward, backward };

/// Whether a library may compute it, if trials at start allow it. By `automatic` backward is
/// computed by a library only where own kernels go through products, and it needs no more workspace
/// than library_backward_limit: with fixed bits a library may keep gradients of all scores.
bool is_for_library(const AttentionShape& shape, DType dtype, KernelForm form, AttentionPass pass);

/// Returns a shape of fewer sequences, or of a single one and fewer heads, which divide those of
/// `shape`: that of one call of a library's backward. Of more than one head of keys it has the most
/// whose workspace is at most library_backward_limit.
constexpr std::int64_t library_backward_limit = std::int64_t{1} << 30;
AttentionShape library_backward_part(const AttentionShape& shape);

/// Bytes of workspace that are planned, at least those that the library asks for: trials at start
/// see to that.
std::int64_t library_workspace_bytes(const AttentionShape& shape, AttentionPass pass);

/// Kernels of a call, as they are counted where nothing runs.
std::int64_t library_launches(const AttentionShape& shape, AttentionPass pass);

// Calls. They return whether they have computed attention of whole sequences; if not, own kernels
// have to. In a WarmUp they try the library, launch own kernels too, and overwrite all arrays.

template <class T>
bool forward_by_library(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                        View<T**> out, View<compute_t<T>*> log_sum_exp, View<T*> workspace);
template <class T>
bool backward_by_library(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                         View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                         View<const T**> dout, View<T**> dqkv, View<T*> workspace);

/// What a trial found.
struct LibraryFinding {
  std::string what;     ///< "forward, heads of 64"
  std::string refusal;  ///< why the library must not compute it; empty: it may
  bool is_required;     ///< whether the library was asked for
};
/// What all trials of this process found, in order.
std::vector<LibraryFinding> library_findings();
/// Lets own kernels compute from now on what findings call `what`, and gives these `refusal`.
void refuse_attention_library(const std::string& what, const std::string& refusal);

}  // namespace ostrakon::math
