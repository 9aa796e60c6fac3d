// SPDX-License-Identifier: Apache-2.0
#pragma once

// The router of a mixture of experts: it chooses the experts and weights of each row (token), and
// the order in which rows are computed. It computes in the type of sums, float or double, and each
// row independently: other rows do not change the bits of its experts and weights.

#include <ostrakon/base/names.hpp>
#include <ostrakon/math/view.hpp>
#include <vector>

namespace ostrakon::math {

/// The function from a row's logits to scores.
enum class RouterScore {
  softmax,  ///< over all experts
  sigmoid   ///< of each logit separately
};
constexpr Named<RouterScore> router_score_names[] = {{RouterScore::softmax, "softmax"},
                                                     {RouterScore::sigmoid, "sigmoid"}};
constexpr const char* name(RouterScore score) { return name_in(router_score_names, score); }

/// What makes a score of a group of experts: the sum of its two highest scores (DeepSeek-AI 2024,
/// V3, section 2.1.2), or its highest (DeepSeek-AI 2024, V2, section 2.2.2).
enum class RouterGroupScore { sum_of_two, max };
constexpr Named<RouterGroupScore> router_group_score_names[] = {
    {RouterGroupScore::sum_of_two, "sum_of_two"}, {RouterGroupScore::max, "max"}};
constexpr const char* name(RouterGroupScore score) {
  return name_in(router_group_score_names, score);
}

struct Router {
  std::int64_t experts = 1;
  std::int64_t per_token = 1;  ///< experts per row: those with the highest scores
  RouterScore score = RouterScore::softmax;
  bool normalize = true;  ///< divide the scores of a row's experts by their sum
  double scale = 1.0;     ///< factor of the weights
  /// Number of equal groups of adjacent experts. A row's experts are chosen from its
  /// `groups_per_token` groups with the highest group scores.
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  RouterGroupScore group_score = RouterGroupScore::sum_of_two;

  std::int64_t group_size() const { return experts / groups; }
};
constexpr std::int64_t most_router_groups = 64;

/// The routes of `rows` rows. An *assignment* is a row's j-th expert: number row * per_token + j,
/// so there are always rows * per_token assignments. Its *slot* is its index among all assignments
/// sorted by expert, and within an expert by row. The leaves are equal runs of rows.
template <class C>
struct Routes {
  View<C**> scores;                 ///< (rows, experts)
  View<std::int32_t*> chosen;       ///< (assignments), expert; ascending within a row
  View<C*> weights;                 ///< (assignments), weight of the expert's output
  View<std::int32_t*> slots;        ///< (assignments)
  View<std::int32_t*> assignments;  ///< (slots), assignment in the slot
  /// (experts * leaves + 1): rows of leaf l that go to expert e are in the slots from offsets[e *
  /// leaves + l] to the next offset.
  View<std::int64_t*> offsets;
};

/// Routes::offsets for host code, which calls a product for each expert. Waits for `exec`; copies
/// only if the host can't access device memory. `offsets` may be those of several ranks, so many
/// one after the other. In a WarmUp each rank has one row, in run `run`, whatever the device has,
/// as products without rows are not launched.
class OffsetsOnHost {
 public:
  OffsetsOnHost(const Exec& exec, View<const std::int64_t*> offsets, std::int64_t run = 0,
                std::int64_t ranks = 1);

  /// Valid as long as this object and the device's array exist.
  HostView<const std::int64_t*> view() const { return view_; }

 private:
  std::vector<std::int64_t> copy_;
  HostView<const std::int64_t*> view_;
};

/// Replaces the logits in routes.scores by scores, and writes `chosen` and `weights`. `bias`
/// (experts), which may be empty, is added to scores only for the choice, also of groups. Of equal
/// scores the expert, or group, with the lower index is chosen first.
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

/// excess (experts) = the number of rows that go to each expert, minus the mean of these numbers.
/// Summed over leaves as gradients are: within each leaf, then over leaves by the tree of
/// piece_tree.hpp. workspace: excess_workspace() elements.
template <class C>
void load_imbalance(const Exec& exec, const Router& router, std::int64_t leaves,
                    const Routes<C>& routes, View<C*> excess, View<C*> workspace);
std::int64_t excess_workspace(const Router& router, std::int64_t leaves);

/// dlogits (rows, experts) = gradient of the logits, overwritten, from dweights (assignments), the
/// gradient of the weights of chosen experts.
///
/// `balance` adds the gradient of balance * (rows of a leaf) * experts * sum over experts of f P
/// for each leaf: f is the fraction of its assignments that go to the expert, P the mean over its
/// rows of the expert's score, divided by the sum of the row's scores (Fedus et al. 2022, eq. 4,
/// with f over all assignments). f is not differentiated.
template <class C>
void router_backward(const Exec& exec, const Router& router, std::int64_t leaves, C balance,
                     const Routes<C>& routes, View<const C*> dweights, View<C**> dlogits);

}  // namespace ostrakon::math
