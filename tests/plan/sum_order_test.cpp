// SPDX-License-Identifier: Apache-2.0

// The additions of plans, as expressions over leaves, against those of one rank by a plain loop.

#include <map>
#include <ostrakon/plan/ir/reduction_tree.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <utility>

#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

/// Sums as numbers: equal numbers are equal expressions, up to the order of two terms.
class Expressions {
 public:
  static int leaf(std::int64_t number) { return -1 - static_cast<int>(number); }
  int sum(int a, int b) { return number_of(std::minmax(a, b)); }
  int rounded(int a) { return number_of({a, a}); }

 private:
  int number_of(std::pair<int, int> terms) {
    return numbers_.emplace(terms, static_cast<int>(numbers_.size())).first->second;
  }
  std::map<std::pair<int, int>, int> numbers_;
};

/// By a tree: the largest power of two below n is on the left of n.
int tree(Expressions& all, const std::vector<int>& terms) {
  if (terms.size() == 1) return terms.front();
  std::ptrdiff_t left = 1;
  while (2 * left < static_cast<std::ptrdiff_t>(terms.size())) left *= 2;
  const int a = tree(all, {terms.begin(), terms.begin() + left});
  return all.sum(a, tree(all, {terms.begin() + left, terms.end()}));
}

/// Trees over `grain` terms, one after the other, onto `sum` if there is one.
int chain(Expressions& all, const std::vector<int>& terms, std::int64_t grain, const int* sum) {
  const auto end = static_cast<std::ptrdiff_t>(terms.size());
  int so_far = sum == nullptr ? 0 : *sum;
  for (std::ptrdiff_t first = 0; first < end; first += grain) {
    const auto last = std::min<std::ptrdiff_t>(end, first + grain);
    const int next = tree(all, {terms.begin() + first, terms.begin() + last});
    so_far = sum == nullptr && first == 0 ? next : all.sum(so_far, next);
  }
  return so_far;
}

int of_one_rank(Expressions& all, std::int64_t leaves, std::int64_t grain) {
  std::vector<int> terms;
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf) terms.push_back(Expressions::leaf(leaf));
  return chain(all, terms, grain == 0 ? leaves : grain, nullptr);
}

/// The gradient of tied parameters by the unit that is tied, in a leaf.
int tied_leaf(std::int64_t number) { return Expressions::leaf(1000000 + number); }

/// What each rank's part of a unit's gradient is a sum of, when its norm is taken. Follows the plan
/// on all ranks at once. Only the last unit may be tied, to the first.
std::vector<int> sums_of_ranks(Expressions& all, const StepPlan& plan, int unit) {
  const auto ranks = static_cast<std::size_t>(plan.grid.ranks());
  std::vector<std::map<int, int>> held(ranks);  // by buffer
  for (const Action& action : plan.actions) {
    const bool is_tied = unit == 0 && action.buffer(Role::tied_gradients) >= 0;
    if (action.unit != unit && !is_tied) continue;
    const int gradients = action.buffer(is_tied ? Role::tied_gradients : Role::parameter_gradients);
    const int shard = action.buffer(Role::gradient_shard);
    if (action.kind == Kind::norm) {
      std::vector<int> sums;
      for (std::size_t rank = 0; rank < ranks; ++rank) sums.push_back(held[rank].at(shard));
      return sums;
    }
    if (action.kind == Kind::reduce_scatter) {
      const std::vector<std::map<int, int>> before = held;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const int place = plan.grid.coordinate(static_cast<int>(rank), action.span);
        std::vector<int> terms;
        for (int other = 0; other < action.span.ranks; ++other) {
          const int partner =
              static_cast<int>(rank) + (other - place) * plan.grid.stride(action.span);
          const int term = before[static_cast<std::size_t>(partner)].at(gradients);
          terms.push_back(action.buffer(Role::packed) >= 0 ? all.rounded(term) : term);
        }
        const int* so_far = action.continues_sum() ? &before[rank].at(shard) : nullptr;
        held[rank][shard] =
            chain(all, terms, action.tree > 0 ? action.tree : action.span.ranks, so_far);
      }
      continue;
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::map<int, int>& mine = held[rank];
      if (action.kind == Kind::backward && gradients >= 0) {
        const std::int64_t leaf = plan.leaf(static_cast<int>(rank), action.micro_batch);
        const int own = is_tied ? tied_leaf(leaf) : Expressions::leaf(leaf);
        const bool adds = action.adds_gradients() && !is_tied;
        if (adds) {
          EXPECT_EQ(action.adds_to == AddsTo::tied_gradients,
                    mine.at(gradients) == tied_leaf(leaf));
        }
        mine[gradients] = adds ? all.sum(mine.at(gradients), own) : own;
      }
      if (action.kind == Kind::accumulate)
        mine[gradients] = all.sum(mine.at(gradients), mine.at(action.buffer(Role::source)));
      const auto copied = mine.find(action.buffer(Role::source));
      if ((action.kind == Kind::copy_to_host || action.kind == Kind::copy_to_device) &&
          copied != mine.end())
        mine[action.buffer(Role::target)] = copied->second;
    }
  }
  return {};
}

/// Whether a plan's sums are one rank's, as it computes them.
bool sums_as_one(const StepPlan& plan, std::int64_t leaves, std::int64_t grain, int unit) {
  Expressions all;
  const int reference = of_one_rank(all, leaves, grain);
  const std::vector<int> sums = sums_of_ranks(all, plan, unit);
  EXPECT_EQ(static_cast<int>(sums.size()), plan.grid.ranks());
  return std::all_of(sums.begin(), sums.end(), [&](int sum) { return sum == reference; });
}

struct Case {
  int ranks = 1;
  std::int64_t leaves = 1;
  Policy policy;
};

Case random_case(Random& random) {
  const auto below = [&](std::uint64_t count) { return static_cast<int>(random() % count); };
  const int sizes[] = {1, 2, 4, 8, 16, 32, 3, 6, 12};
  Case one;
  one.ranks = sizes[below(9)];
  const int micro_batches = below(3) > 0 ? 1 << below(6) : 1 + below(20);
  one.leaves = std::int64_t{one.ranks} * micro_batches;
  one.policy = make_policy(one.leaves, random() % choices);
  const std::vector<int> groups = groups_of(one.ranks);
  one.policy.shard_group = groups[random() % groups.size()];
  one.policy.sum_grain = below(8) == 0 ? 0 : std::int64_t{1} << below(8);
  if (below(2) == 0) one.policy.leaf_order = LeafOrder::ascending;
  one.policy.offload = static_cast<Offload>(below(4));
  one.policy.early_updates = below(2) == 0;
  one.policy.in_flight_reductions = below(3);
  if (below(8) == 0) one.policy.reduce = DType::bf16;
  if (below(2) == 0) place_on_nodes(random, one.ranks, one.policy);
  const int group = one.policy.shard_group > 0 ? one.policy.shard_group : one.ranks;
  int* const sharing = below(3) > 0 ? &one.policy.context_ranks : &one.policy.expert_ranks;
  const int parts = 2 << below(2);
  const bool is_tree = one.policy.sum_grain == 0 || one.policy.sum_grain >= parts;
  if (below(2) == 0 && group % parts == 0 && is_tree) *sharing = parts;
  return one;
}

std::string describe(const Case& one) {
  return text(one.ranks, " ranks in groups of ", one.policy.shard_group, ", ", one.leaves,
              " leaves, grain ", one.policy.sum_grain, ", ", name(one.policy.accumulation), ", ",
              name(one.policy.sharding), ", offload ", name(one.policy.offload), ", ",
              name(one.policy.leaf_order), ", nodes of ", one.policy.ranks_per_node, ", context ",
              one.policy.context_ranks, ", experts over ", one.policy.expert_ranks);
}

/// Calls check(one) for that many of random_case, which vary(one, random) has changed.
template <class Vary, class Check>
void for_random_cases(int count, std::uint64_t seed, const Vary& vary, const Check& check) {
  Random random(seed);
  for (int i = 0; i < count && !::testing::Test::HasFatalFailure(); ++i) {
    Case one = random_case(random);
    vary(one, random);
    SCOPED_TRACE(describe(one));
    check(one);
  }
}

const ModelDescription& small_model() {
  static const ModelDescription model = make_model(1, false, 7);
  return model;
}

StepPlan plan_of(int ranks, const Policy& policy) {
  return train_plan(small_model(), ranks, policy);
}

TEST(SumOrder, PlansKnowWhetherTheirSumsAreThoseOfOneRank) {
  int same = 0, other = 0, because_of_grain = 0, refused = 0, continued = 0, apart = 0;
  const auto as_it_is = [](const Case&, const auto&) {};
  for_random_cases(trials(6000), 1, as_it_is, [&](const Case& one) {
    StepPlan plan;
    const std::string error = refusal([&] { plan = plan_of(one.ranks, one.policy); });
    if (!error.empty()) {
      EXPECT_HAS(error, "parallel.leaf_order = ");
      EXPECT_NE(one.policy.leaf_order, LeafOrder::ascending);
      ++refused;
      return;
    }
    const bool is_same = sums_as_one(plan, one.leaves, one.policy.sum_grain, 1);
    ASSERT_EQ(plan.has_the_bits_of_one_rank(), is_same);
    (is_same ? same : other) += 1;
    const bool is_grain =
        !why_grain_differs(plan.grid, plan.layouts.accumulation, plan.layouts.sum_grain).empty();
    EXPECT_FALSE(is_same && is_grain);
    because_of_grain += is_grain ? 1 : 0;
    apart += plan.leaves_apart() > 1 ? 1 : 0;
    continued += std::any_of(plan.actions.begin(), plan.actions.end(),
                             [](const Action& action) { return action.continues_sum(); })
                     ? 1
                     : 0;
    if ((same + other) % 8 == 0) expect_proven(plan);
  });
  EXPECT_GT(same, trials(1000));
  EXPECT_GT(other, trials(1000));
  EXPECT_GT(because_of_grain, trials(250));
  EXPECT_GT(continued, trials(250));
  EXPECT_GT(apart, trials(100));
  EXPECT_GT(refused, trials(50));
}

// What a library sums takes no staging, and has the bits of one rank where no ranks are summed. A
// grain is that of each rank's micro-batches then.
TEST(SumOrder, LibrariesSumWithoutStaging) {
  int by_library = 0, with_grain = 0, in_levels = 0;
  const auto on_nodes = [](Case& one, Random& random) {
    place_on_nodes(random, one.ranks, one.policy);
    one.policy.hierarchical = {Hierarchical::by_size, 1};
    one.policy.summation = Summation::library;
  };
  for_random_cases(trials(2000), 6, on_nodes, [&](const Case& one) {
    const StepPlan plan = plan_of(one.ranks, one.policy);
    bool sums_ranks = false;
    for (const Action& action : plan.actions) {
      if (action.kind != Kind::reduce_scatter) continue;
      sums_ranks = true;
      EXPECT_EQ(action.buffer(Role::staging), -1);
      EXPECT_EQ(action.tree, 0);
      EXPECT_FALSE(action.continues_sum());
    }
    by_library += sums_ranks ? 1 : 0;
    with_grain += sums_ranks && plan.layouts.sum_grain > 0 ? 1 : 0;
    in_levels += plan.grid.has_levels() ? 1 : 0;
    EXPECT_TRUE(why_grain_differs(plan).empty());
    if (sums_ranks) {
      EXPECT_FALSE(plan.has_the_bits_of_one_rank());
      EXPECT_NE(describe_sums(plan).find("parallel.reduction = library"), std::string::npos);
    }
    expect_proven(plan);
    Policy ordered = one.policy;
    ordered.summation = Summation::ordered;
    ordered.accumulation = plan.layouts.accumulation;
    ordered.leaf_order = LeafOrder::ascending;
    const StepPlan other = plan_of(one.ranks, ordered);
    if (other.grid.node == plan.grid.node) {
      EXPECT_EQ(plan.bytes_sent(), other.bytes_sent());
    }
  });
  EXPECT_GT(by_library, trials(500));
  EXPECT_GT(with_grain, trials(100));
  EXPECT_GT(in_levels, trials(100));
}

// Whatever the numbers of ranks, leaves and the grain: with levels, the sums are those without.
TEST(SumOrder, LevelsChangeNoSum) {
  int in_levels = 0, with_grain = 0;
  const auto on_nodes = [](Case& one, Random& random) {
    place_on_nodes(random, one.ranks, one.policy);
    one.policy.leaf_order = LeafOrder::ascending;
  };
  for_random_cases(trials(6000), 5, on_nodes, [&](Case one) {
    one.policy.hierarchical = {Hierarchical::by_size, 1};
    const StepPlan plan = plan_of(one.ranks, one.policy);
    if (!plan.grid.has_levels()) return;
    one.policy.hierarchical = {Hierarchical::never, 1};
    const StepPlan flat = plan_of(one.ranks, one.policy);
    ASSERT_FALSE(flat.grid.has_levels());
    Expressions all;
    for (int unit : {1, 2})
      ASSERT_EQ(sums_of_ranks(all, plan, unit), sums_of_ranks(all, flat, unit));
    EXPECT_EQ(plan.has_the_bits_of_one_rank(), flat.has_the_bits_of_one_rank());
    ++in_levels;
    with_grain += plan.layouts.sum_grain > 0 ? 1 : 0;
  });
  EXPECT_GT(in_levels, trials(1000));
  EXPECT_GT(with_grain, trials(500));
}

// Each leaf is some rank's, and the parts of a sample are those of neighbours, at the same time.
TEST(SumOrder, NeighboursHaveThePartsOfASample) {
  int apart = 0, in_levels = 0;
  const auto ascending = [](Case& one, Random& random) {
    one.policy.leaf_order = LeafOrder::ascending;
    if (random() % 2 == 0) one.policy.accumulation = Accumulation::reduce_last;
  };
  for_random_cases(trials(1000), 3, ascending, [&](const Case& one) {
    const StepPlan plan = plan_of(one.ranks, one.policy);
    const int parts = one.policy.context_ranks;
    std::vector<bool> has(static_cast<std::size_t>(one.leaves), false);
    for (int rank = 0; rank < one.ranks; ++rank)
      for (std::int64_t m = 0; m < plan.grid.micro_batches(); ++m) {
        const std::int64_t leaf = plan.leaf(rank, m);
        has.at(static_cast<std::size_t>(leaf)) = true;
        ASSERT_EQ(leaf % parts, rank % parts);
        ASSERT_EQ(leaf / parts, plan.leaf(rank - rank % parts, m) / parts);
      }
    EXPECT_EQ(std::count(has.begin(), has.end(), true), one.leaves);
    apart += plan.leaves_apart() > 1 && parts > 1 ? 1 : 0;
    in_levels += plan.leaves_apart() > 1 && plan.grid.has_levels() ? 1 : 0;
  });
  EXPECT_GT(apart, trials(20));
  EXPECT_GT(in_levels, trials(4));
}

// Ranks that share samples sum their micro-batches first where they were asked to, or, with cheap
// sums of whole gradients, where bits depend on the layout anyway. Then a step reduces once.
TEST(SumOrder, RanksThatShareSamplesReduceOnceWhereBitsAreNotPromised) {
  struct Row {
    Sharding sharding;
    Accumulation asked;
    Summation summation;
    DType reduce;
    std::int64_t micro_batches;
    Accumulation found;
    const char* words;
  };
  const auto ordered = Summation::ordered, library = Summation::library;
  const auto automatic = Accumulation::automatic, each = Accumulation::shard_each,
             last = Accumulation::reduce_last;
  const char* const equal = "bitwise equal to 1 rank";
  const char* const apart =
      "equal to 1 rank up to rounding, as ranks that share sequences or experts each sum their "
      "micro-batches first (parallel.accumulation = reduce_last)";
  const char* const rounding = "equal to 1 rank up to rounding";
  const char* const by_library =
      "equal to 1 rank up to rounding, as the library adds ranks in an order of its own "
      "(parallel.reduction = library)";
  const Row rows[] = {{Sharding::optimizer, automatic, ordered, DType::fp32, 4, each, equal},
                      {Sharding::optimizer, automatic, ordered, DType::bf16, 4, last, apart},
                      {Sharding::none, automatic, library, DType::fp32, 4, last, by_library},
                      {Sharding::full, automatic, library, DType::fp32, 4, each, by_library},
                      {Sharding::gradients, automatic, ordered, DType::bf16, 4, each, rounding},
                      {Sharding::optimizer, last, ordered, DType::fp32, 4, last, apart},
                      {Sharding::full, last, ordered, DType::fp32, 4, last, apart},
                      {Sharding::none, last, ordered, DType::fp32, 1, last, equal},
                      {Sharding::none, automatic, ordered, DType::fp32, 1, last, equal}};
  for (const Row& row : rows)
    for (const bool has_experts : {false, true}) {
      Policy policy = make_policy(4 * row.micro_batches);
      (has_experts ? policy.expert_ranks : policy.context_ranks) = 2;
      policy.sharding = row.sharding;
      policy.accumulation = row.asked;
      policy.summation = row.summation;
      policy.reduce = row.reduce;
      const StepPlan plan = plan_of(4, policy);
      EXPECT_EQ(plan.layouts.accumulation, row.found) << row.words;
      EXPECT_EQ(describe_sums(plan), row.words);
      const auto sums =
          std::count_if(plan.actions.begin(), plan.actions.end(), [&](const Action& action) {
            return action.kind == Kind::reduce_scatter && action.unit == 1;
          });
      EXPECT_EQ(sums, row.found == last ? 1 : row.micro_batches);
      expect_proven(plan);
    }
}

// A micro-batch of ranks that share samples counts as many leaves of a grain as they have parts.
TEST(SumOrder, AGrainIsThatOfWholeSamples) {
  const auto partial_sums = [](int context, std::int64_t grain) {
    Policy policy = make_policy(8 * context);
    policy.accumulation = Accumulation::reduce_last;
    policy.context_ranks = context;
    policy.sum_grain = grain;
    const StepPlan plan = plan_of(context, policy);
    expect_proven(plan);
    return std::pair(plan.span_sums(1).front().tree, peak_live_bytes(plan));
  };
  for (const std::int64_t grain : {1, 2, 4, 8}) {
    EXPECT_EQ(partial_sums(4, 4 * grain).first, grain);
    EXPECT_EQ(partial_sums(4, 4 * grain).first, partial_sums(1, grain == 8 ? 0 : grain).first);
  }
  EXPECT_EQ(partial_sums(4, 2).first, 1);  // less than the parts of one sample
  EXPECT_LT(partial_sums(4, 4).second, partial_sums(4, 32).second);
}

// With powers of two, and gradients that are sent as they are, some order has the bits of one rank
// wherever all ranks after the first trees are in one group, or in one tree.
TEST(SumOrder, AutomaticAccumulationSumsAsOneRankWhereItCan) {
  int chosen = 0, without = 0;
  const auto automatic = [](Case& one, const auto&) {
    one.policy.leaf_order = LeafOrder::ascending;
    one.policy.accumulation = Accumulation::automatic;
  };
  for_random_cases(trials(3000), 2, automatic, [&](const Case& one) {
    const StepPlan plan = plan_of(one.ranks, one.policy);
    Policy before = one.policy;
    before.sum_grain = 0;
    const bool is_default =
        plan.layouts.accumulation == plan_of(one.ranks, before).layouts.accumulation;
    if (plan.has_the_bits_of_one_rank()) {
      chosen += is_default ? 0 : 1;
      return;
    }
    EXPECT_TRUE(is_default);
    if (plan.layouts.sum_grain == 0) return;
    for (Accumulation accumulation :
         {Accumulation::reduce_each, Accumulation::shard_each, Accumulation::reduce_last}) {
      Policy other = one.policy;
      other.accumulation = accumulation;
      const bool could = plan_of(one.ranks, other).has_the_bits_of_one_rank();
      // Whole gradients are not kept where parts were asked for.
      EXPECT_TRUE(!could || accumulation == Accumulation::reduce_last);
    }
    ++without;
  });
  EXPECT_GT(chosen, trials(100));
  EXPECT_GT(without, trials(100));
}

/// Over eight leaves: gradients of one use, of two that are added in each leaf, and of two that are
/// added last.
TEST(SumOrder, GradientsOfTiedUnitsAreOneTreeOnEveryLayout) {
  Random random(9);
  int in_levels = 0;
  for (int trial = 0; trial < trials(4000); ++trial) {
    const int ties = trial % 3, ranks = 1 << random() % 4;
    ModelDescription model = make_model(1, ties > 0, 2);
    model.units.back().sums_tied_apart = ties == 2;
    Policy policy = make_policy(8, random() % choices);
    const std::vector<int> groups = groups_of(ranks);
    policy.shard_group = groups[random() % groups.size()];
    place_on_nodes(random, ranks, policy);
    const StepPlan plan = train_plan(model, ranks, policy);
    EXPECT_TRUE(plan.has_the_bits_of_one_rank());
    in_levels += plan.grid.has_levels() ? 1 : 0;
    Expressions all;
    std::vector<int> own, tied, both;
    for (int leaf = 0; leaf < 8; ++leaf) {
      own.push_back(Expressions::leaf(leaf));
      tied.push_back(tied_leaf(leaf));
      both.push_back(all.sum(own.back(), tied.back()));
    }
    const int of_use = tree(all, own);
    const int expected = ties == 0   ? of_use
                         : ties == 1 ? tree(all, both)
                                     : all.sum(of_use, tree(all, tied));
    const auto sums = [&](int sum) {
      return std::vector<int>(static_cast<std::size_t>(ranks), sum);
    };
    ASSERT_EQ(sums_of_ranks(all, plan, 0), sums(expected)) << describe({ranks, 8, policy});
    ASSERT_EQ(sums_of_ranks(all, plan, 1), sums(of_use)) << describe({ranks, 8, policy});
  }
  EXPECT_GT(in_levels, trials(300));
}

TEST(SumOrder, AGrainOfAllLeavesIsNone) {
  const ModelDescription model = make_model(2, true, 3);
  for (int ranks : {1, 2, 4}) {
    Policy policy = make_policy(8);
    const auto hash = [&](std::int64_t grain) {
      policy.sum_grain = grain;
      return train_plan(model, ranks, policy).hash();
    };
    const std::uint64_t one_tree = hash(0);
    for (std::int64_t grain : {8, 16, 1 << 20}) EXPECT_EQ(hash(grain), one_tree);
    EXPECT_NE(hash(4), one_tree);
  }
}

TEST(SumOrder, RefusesAGrainThatIsNoPowerOfTwo) {
  Policy policy = make_policy(16);
  for (std::int64_t grain : {-8, 3, 6, 12}) {
    policy.sum_grain = grain;
    EXPECT_HAS(refusal([&] { plan_of(2, policy); }), text("training.sum_grain = ", grain, ": "));
  }
}

TEST(ReductionTree, SplitsAtTheLargestPowerOfTwoBelow) {
  for (const auto& [leaves, left] : {std::pair(2, 1), std::pair(3, 2), std::pair(4, 2),
                                     std::pair(5, 4), std::pair(8, 4), std::pair(9, 8)})
    EXPECT_EQ(left_leaves(leaves), left);
}

TEST(ReductionTree, AlignedRunsOfPowersOfTwoAreNodes) {
  for (std::int64_t total : {2, 3, 6, 8, 12, 17}) {
    for (std::int64_t run = 1; run < total; run *= 2) {
      for (std::int64_t begin = 0; begin + run <= total; begin += run) {
        const auto [parent, sibling] = parent_and_sibling({begin, run}, total);
        EXPECT_EQ(parent.leaves, run + sibling.leaves);
        EXPECT_EQ(std::min(begin, sibling.begin), parent.begin);
      }
    }
  }
}

TEST(ReductionTree, WithAGrainTreesAreAddedOneAfterTheOther) {
  const auto expect = [](TreeNode node, std::int64_t total, TreeNode parent, TreeNode sibling) {
    const auto [found_parent, found_sibling] = parent_and_sibling(node, total, 4);
    EXPECT_EQ(found_parent, parent);
    EXPECT_EQ(found_sibling, sibling);
  };
  expect({0, 1}, 11, {0, 2}, {1, 1});
  expect({2, 2}, 11, {0, 4}, {0, 2});
  expect({0, 4}, 11, {0, 8}, {4, 4});
  expect({4, 4}, 11, {0, 8}, {0, 4});
  expect({6, 1}, 11, {6, 2}, {7, 1});
  expect({0, 8}, 11, {0, 11}, {8, 3});
  expect({8, 2}, 11, {8, 3}, {10, 1});
  expect({8, 3}, 11, {0, 11}, {0, 8});
  expect({8, 1}, 9, {0, 9}, {0, 8});
  // A grain that is not less than the leaves makes no difference.
  expect({0, 2}, 4, {0, 4}, {2, 2});
  expect({0, 2}, 3, {0, 3}, {2, 1});
}

}  // namespace
}  // namespace ostrakon::tests
