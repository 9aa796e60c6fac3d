// SPDX-License-Identifier: Apache-2.0
#pragma once

// The router of a mixture of experts: which experts each row (token) goes to, with which weights,
// and in which order rows are computed. All of it in the type in which sums are kept, float or
// double, and one row by itself: other rows change no bit of its experts and weights.

#include <ostrakon/base/names.hpp>
#include <ostrakon/math/view.hpp>
#include <vector>

namespace ostrakon::math {

/// What makes scores of a row's logits.
enum class RouterScore {
  softmax,  ///< over all experts
  sigmoid   ///< of each logit by itself
};
constexpr Named<RouterScore> router_score_names[] = {{RouterScore::softmax, "softmax"},
                                                     {RouterScore::sigmoid, "sigmoid"}};
constexpr const char* name(RouterScore score) { return name_in(router_score_names, score); }

struct Router {
  std::int64_t experts = 1;
  std::int64_t per_token = 1;  ///< experts of a row, those with the highest scores
  RouterScore score = RouterScore::softmax;
  bool normalize = true;  ///< divide the scores of a row's experts by their sum
  double scale = 1.0;     ///< factor of the weights
  /// Equal runs of experts. A row's experts are all of its `groups_per_token` groups, those with
  /// the highest sums of the two highest scores in them (DeepSeek-AI 2024, V3, section 2.1.2).
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;

  std::int64_t group_size() const { return experts / groups; }
};
constexpr std::int64_t most_router_groups = 64;

/// Where `rows` rows go. An *assignment* is a row's j-th expert: number row * per_token + j, of
/// which there are rows * per_token whatever the router chooses. Its *slot* is its place among all
/// assignments sorted by expert, those of an expert in the order of rows. The leaves are equal runs
/// of rows.
template <class C>
struct Routes {
  View<C**> scores;                 ///< (rows, experts)
  View<std::int32_t*> chosen;       ///< (assignments), the expert; ascending within a row
  View<C*> weights;                 ///< (assignments), of the expert's output
  View<std::int32_t*> slots;        ///< (assignments)
  View<std::int32_t*> assignments;  ///< (slots), the assignment in it
  /// (experts * leaves + 1): slots of the rows of leaf l that go to expert e are those from
  /// offsets[e * leaves + l] to the next offset.
  View<std::int64_t*> offsets;
};

/// Routes::offsets for host code, which calls a product for each expert. Waits for `exec`; only
/// where the host does not reach device memory is it a copy. In a WarmUp there is one row, in run
/// `run`, whatever the device has: products that have no rows are not launched.
class OffsetsOnHost {
 public:
  OffsetsOnHost(const Exec& exec, View<const std::int64_t*> offsets, std::int64_t run = 0);

  /// Valid as long as this and the device's are.
  HostView<const std::int64_t*> view() const { return view_; }

 private:
  std::vector<std::int64_t> copy_;
  HostView<const std::int64_t*> view_;
};

/// Replaces the logits in routes.scores by scores, and writes `chosen` and `weights`. `bias`
/// (experts), which need not exist, is added to scores for the choice alone, of groups, too. Of
/// equal scores that of the expert, or group, with the lower index is higher.
template <class C>
void choose_experts(const Exec& exec, const Router& router, View<const C*> bias,
                    const Routes<C>& routes);

/// Writes `slots`, `assignments` and `offsets`, from `chosen`.
template <class C>
void sort_by_expert(const Exec& exec, const Router& router, std::int64_t leaves,
                    const Routes<C>& routes);

/// counts (experts) += the number of rows that go to each expert.
void add_counts(const Exec& exec, std::int64_t leaves, View<const std::int64_t*> offsets,
                View<std::int64_t*> counts);

/// excess (experts) = the number of rows that go to each expert, less the mean of these numbers;
/// summed over leaves as gradients are: those of each leaf by themselves, and the leaves by the
/// tree of piece_tree.hpp. workspace: excess_workspace() elements.
template <class C>
void count_excess(const Exec& exec, const Router& router, std::int64_t leaves,
                  const Routes<C>& routes, View<C*> excess, View<C*> workspace);
std::int64_t excess_workspace(const Router& router, std::int64_t leaves);

/// dlogits (rows, experts) = gradient by the logits, overwritten, from dweights (assignments), that
/// by the weights of chosen experts.
///
/// `balance` adds the gradient of balance * (rows of a leaf) * experts * sum over experts of f P
/// for each leaf: f is the share of its assignments that go to the expert, P the mean over its rows
/// of the expert's score, divided by the sum of the row's scores (Fedus et al. 2022, eq. 4, with f
/// over all assignments). No gradient goes through f.
template <class C>
void router_backward(const Exec& exec, const Router& router, std::int64_t leaves, C balance,
                     const Routes<C>& routes, View<const C*> dweights, View<C**> dlogits);

}  // namespace ostrakon::math
