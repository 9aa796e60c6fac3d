// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/attention/library_use.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/model/product_settings.hpp>
#include <vector>

namespace ostrakon::model {

struct DecodedRun;

/// The constant shape of what is computed at once: `batch` sequences of `tokens` tokens, or the
/// part of each that one of `context_ranks` neighbouring ranks has. The ranks then exchange keys
/// and values (context parallel).
struct LeafShape {
  std::int64_t batch = 1;
  std::int64_t tokens = 1;
  std::int64_t context_ranks = 1;
  /// Pieces of each sequence that are leaves of their own, whichever ranks have them; 1: not cut.
  std::int64_t grain = 1;
  bool by_sequence = false;  ///< whether sequences are leaves of their own
  /// Neighbouring ranks that compute the rows together: each has some heads, columns of the MLP and
  /// words, and between products an equal part of the rows (tensor and sequence parallel).
  std::int64_t tensor_ranks = 1;
  /// Pieces of heads, columns and words whose terms are summed by themselves, whichever ranks have
  /// them; 1: as many as ranks.
  std::int64_t tensor_grain = 1;
  /// In how many equal runs a tensor rank's rows are exchanged in forward of a block, each while
  /// others are computed.
  std::int64_t tensor_chunks = 1;
  /// Neighbouring ranks that share the experts of a block: each has an equal part of these, and
  /// computes with it the tokens of all (expert parallel). All tensor ranks are among them.
  std::int64_t expert_ranks = 1;
  /// Room for tokens that a rank sends to another one's experts at a time, relative to an even
  /// division. More take further rounds.
  double expert_capacity = 1.0;
  /// Blocks compute gradients of parameters in a phase that is deferred, so that it may run when
  /// there is nothing else to do. Changes no bit.
  bool defers_gradients = false;
  /// The form of kernels for which workspaces are sized. A leaf for another form than this build's
  /// can be planned, but not computed.
  math::KernelForm kernels = math::kernel_form;
  /// Whether sequences are packed from documents that do not see each other: a batch then has,
  /// behind its tokens and targets, for each token the position in its sequence at which its
  /// document begins (int32).
  bool has_documents = false;
  /// Whether positions begin at 0 in each of these documents, rather than in each sequence.
  bool restarts_positions = false;
  /// Whether neighbouring calls that memory bounds are joined into one kernel where a unit knows
  /// how (graph/fuse). Changes no bit.
  bool fuses = on_device;
  ProductSettings products = {};                         ///< of the linear layers of blocks
  math::LibraryUse attention = math::LibraryUse::never;  ///< of whole sequences
  /// Above 0: sequences are decoded, not trained. That many rows of one are computed at a time at
  /// most, and with them a row of each other one; keys and values of the rows before are kept.
  std::int64_t decoded_rows = 0;
  /// Whether the losses of tokens have the margins of their logits behind them: see
  /// math::losses_of. Changes no bit of a loss.
  bool tells_margins = false;
  /// What backward minimizes. Losses of forward are cross-entropies.
  math::LossForm loss = {};
  /// Above 0: sequences are pairs of documents, an answer that was chosen and one that was
  /// rejected, and losses are those of pairs, with this beta: see math::pair_losses. A batch then
  /// has two floats for each pair behind all else, the reference's log-probabilities of its
  /// answers.
  double pair_beta = 0.0;

  bool has_pairs() const { return pair_beta > 0.0; }
  /// Elements of 4 bytes that a batch has.
  std::int64_t batch_elements() const {
    return (has_documents ? 3 : 2) * rows() + (has_pairs() ? 2 * batch : 0);
  }
  /// The number of tensor pieces over all tensor ranks; own_pieces() is that of one rank.
  std::int64_t tensor_pieces() const {
    return tensor_grain > tensor_ranks ? tensor_grain : tensor_ranks;
  }
  std::int64_t own_pieces() const { return tensor_pieces() / tensor_ranks; }
  /// Rows that a tensor rank has where they are divided.
  std::int64_t own_rows() const { return rows() / tensor_ranks; }
  /// The number of leaves of the one tree by which sums over a tensor rank's own rows are made: its
  /// pieces, as those of other ranks, are leaves of it.
  std::int64_t own_row_leaves() const { return leaves() * own_pieces(); }
  /// Whether experts are units of their own: those that ranks share, and all that come behind
  /// blocks in tensor pieces.
  bool has_expert_units() const { return expert_ranks > 1 || tensor_pieces() > 1; }

  /// How many pieces a part has of each sequence, whose rows are neighbours.
  std::int64_t pieces() const { return grain > context_ranks ? grain / context_ranks : 1; }
  math::SequenceParts sequence() const { return {tokens, context_ranks, pieces()}; }
  /// Whether rows are in another order than tokens.
  bool is_cut() const { return context_ranks * grain > 1; }
  /// Whether gradients of parameters are sums over several leaves by one tree, here or on another
  /// number of ranks; else all rows are one leaf.
  bool sums_by_leaf() const { return by_sequence || grain > 1; }
  std::int64_t leaves() const { return sums_by_leaf() ? batch * pieces() : 1; }
  /// Tokens of each sequence that a part has.
  std::int64_t part_tokens() const { return tokens / context_ranks; }
  /// Rows that are computed at a time.
  std::int64_t rows() const { return decodes() ? decoded_rows + batch - 1 : batch * part_tokens(); }
  bool decodes() const { return decoded_rows > 0; }
  /// Whether backward may add gradients of parameters to a sum by the kernels that make them
  /// (graph::Call::can_add_gradients): products add finished sums.
  bool can_add_gradients() const { return math::multiplies_on_device(kernels); }
  /// How many of the latest tokens of a sequence decoding keeps keys and values of, for queries
  /// with this window (0: none): what all of its rows that are computed at a time see, which is all
  /// of a short one.
  std::int64_t cached_rows(std::int64_t window) const {
    return window > 0 && window <= tokens - decoded_rows ? window - 1 + decoded_rows : tokens;
  }

  /// body(first row, run) for the runs of neighbouring tokens that `part` has of each sequence.
  template <class Body>
  void for_each_run(std::int64_t part, const Body& body) const {
    for (std::int64_t s = 0; s < batch; ++s)
      for (std::int64_t r = 0; r < sequence().runs(); ++r) {
        const math::TokenRun run = sequence().run(part, r);
        body(s * part_tokens() + run.row, run);
      }
  }

  /// Throws Error unless these are runs of sequences that are decoded, with rows() rows at most; or
  /// null, where they are not.
  void require_runs(const std::vector<DecodedRun>* runs) const;
};

/// What blocks do not save, but compute again in backward: less `saved`, more workspace of
/// backward, and no bit of a result changes.
struct Recompute {
  bool attention = false;  ///< its output and log-sum-exp, from queries, keys and values
  bool norms = false;      ///< their statistics
  bool mlp = false;        ///< the product before the activation
  bool norm_outputs = true;
  bool activations = true;  ///< outputs of activation functions
};

}  // namespace ostrakon::model
