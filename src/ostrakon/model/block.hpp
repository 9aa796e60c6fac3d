// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/operations.hpp>
#include <ostrakon/model/graph/program.hpp>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::model {

/// Appends causal attention of n, (rows, width), to itself: (rows, query_width()). Parameters
/// `name`.qkv, and with query_key_norm `name`.query_norm and `name`.key_norm.
template <class T>
int add_attention(graph::Operations<T>& block, const DecoderSettings& settings,
                  const LeafShape& leaf, const std::string& name, int n);

/// Makes the units of a model's transformer blocks, pre-norm; x is input and y output, both (rows,
/// width):
///
///   middle = x      + attention(norm(x) Wqkv^T) Wout^T    each head of queries and keys normed
///                                                         again, with query_key_norm
///   y      = middle + f(norm(middle))
///
/// where f is an MLP or a mixture of experts. Outputs of norms and activations are not saved:
/// backward makes them again where gradients of weights need them. What else it makes again is
/// chosen with Recompute. A unit has one block, "block.3", or several neighbouring ones,
/// "block.4-7"; units whose blocks have the same frozen parameters share one program.
template <class T>
class BlockMaker {
 public:
  BlockMaker(const DecoderSettings& settings, const LeafShape& leaf, Recompute recompute = {},
             Frozen frozen = {})
      : settings_(settings), leaf_(leaf), recompute_(recompute), frozen_(std::move(frozen)) {}

  /// The unit of `count` blocks from block `first` on.
  std::unique_ptr<Unit<T>> make(std::int64_t first, std::int64_t count = 1);

 private:
  struct Programs {
    std::shared_ptr<const graph::Program> at_once, deferring;
  };

  DecoderSettings settings_;
  LeafShape leaf_;
  Recompute recompute_;
  Frozen frozen_;
  std::map<std::vector<bool>, Programs> programs_;  // by which parameters of each are frozen
};

}  // namespace ostrakon::model
