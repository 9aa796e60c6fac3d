// SPDX-License-Identifier: Apache-2.0

// The proof that is required before a plan runs: it holds for every plan that is written, and finds
// what is wrong with plans that were broken on purpose. What is broken is determined by an oracle
// that works by other means.

#include <map>
#include <utility>

#include "plan/mutants.hpp"
#include "plan/oracle.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

bool is_proven(const PlacedPlan& placed) {
  return refused_by([&] {
           for (const MemoryPlan& memory : placed.memory) prove_memory(placed.plan, memory);
         })
      .empty();
}

/// Sets lifetimes to the first and last use.
void find_lifetimes(StepPlan& plan) {
  for (Buffer& buffer : plan.buffers) buffer.first = buffer.last = -1;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
    for (const Use& use : plan.actions[a].uses) {
      Buffer& buffer = plan.buffers[use.buffer];
      if (buffer.first < 0) buffer.first = a;
      buffer.last = a;
    }
}

void plan_again(PlacedPlan& placed) { placed.memory = place(placed.plan).memory; }

/// Each changes a plan in one way; false where there is nothing that could be changed so.
using PlacedMutation = std::function<bool(PlacedPlan&, Random&)>;

bool is_copy_or_host_work(const Action& action) {
  return action.stream == Stream::upload || action.stream == Stream::download ||
         action.stream == Stream::host;
}

/// Any wait, or one of or for a copy or what the host computes.
template <bool any>
bool drop_a_wait(PlacedPlan& placed, Random& random) {
  std::vector<Action>& actions = placed.plan.actions;
  std::vector<std::pair<std::size_t, std::size_t>> waits;
  for (std::size_t a = 0; a < actions.size(); ++a)
    for (std::size_t w = 0; w < actions[a].waits.size(); ++w)
      if (any || is_copy_or_host_work(actions[a]) ||
          is_copy_or_host_work(actions[actions[a].waits[w]]))
        waits.emplace_back(a, w);
  if (waits.empty()) return false;
  const auto [a, w] = draw(waits, random);
  actions[a].waits.erase(actions[a].waits.begin() + static_cast<std::ptrdiff_t>(w));
  return true;
}

/// A copy with which a buffer begins does nothing, though it waits and is waited for.
bool lose_a_copy(PlacedPlan& placed, Random& random) {
  std::vector<Action*> copies;
  for (std::size_t a = 0; a < placed.plan.actions.size(); ++a) {
    Action& action = placed.plan.actions[a];
    const int target = action.buffer(Role::target);
    if (target >= 0 && !placed.plan.buffers[target].persistent &&
        placed.plan.buffers[target].first == static_cast<int>(a))
      copies.push_back(&action);
  }
  if (copies.empty()) return false;
  draw(copies, random)->uses.clear();
  find_lifetimes(placed.plan);
  return true;
}

/// Swaps neighbours or near neighbours, of the same stream or of two. Memory stays, or is planned
/// for the new lifetimes.
bool swap_two_actions(PlacedPlan& placed, Random& random) {
  StepPlan& plan = placed.plan;
  const std::size_t distance = 1 + random() % 4;
  if (plan.actions.size() <= distance) return false;
  const std::size_t a = random() % (plan.actions.size() - distance), b = a + distance;
  std::swap(plan.actions[a], plan.actions[b]);
  std::swap(placed.identity[a], placed.identity[b]);
  for (Action& action : plan.actions)
    for (int& waited : action.waits)
      waited = waited == static_cast<int>(a)   ? static_cast<int>(b)
               : waited == static_cast<int>(b) ? static_cast<int>(a)
                                               : waited;
  find_lifetimes(plan);
  if (random() % 2 == 0) plan_again(placed);
  return true;
}

/// Plans memory for a lifetime that ends too early or begins too late; the plan says so, or keeps
/// the true lifetime. Or the buffer is left out where it is released. Of any buffer, or one on the
/// host.
template <bool any>
bool shorten_a_lifetime(PlacedPlan& placed, Random& random) {
  StepPlan& plan = placed.plan;
  std::vector<std::size_t> candidates;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (!plan.buffers[b].persistent && plan.buffers[b].first < plan.buffers[b].last &&
        (any || plan.buffers[b].space == Space::host))
      candidates.push_back(b);
  if (candidates.empty()) return false;
  const std::size_t b = draw(candidates, random);
  Buffer& buffer = plan.buffers[b];
  const Buffer before = buffer;
  const int by =
      1 + static_cast<int>(random() % static_cast<std::uint64_t>(buffer.last - buffer.first));
  auto& last = plan.actions[buffer.last].uses;
  if (plan.actions[buffer.last].kind == Kind::release && random() % 2 == 0) {
    last.erase(std::remove_if(last.begin(), last.end(),
                              [&](const Use& use) { return use.buffer == static_cast<int>(b); }),
               last.end());
    find_lifetimes(plan);
    plan_again(placed);
    return true;
  }
  if (random() % 3 == 0)
    buffer.first += by;
  else
    buffer.last -= by;
  plan_again(placed);
  if (random() % 3 != 0) buffer = before;
  return true;
}

/// Moves a buffer onto another that is live at the same time.
bool overlap_two_buffers(PlacedPlan& placed, Random& random) {
  const std::vector<Buffer>& buffers = placed.plan.buffers;
  std::vector<std::pair<std::size_t, std::size_t>> together;
  for (std::size_t x = 0; x < buffers.size(); ++x)
    for (std::size_t y = 0; y < buffers.size(); ++y)
      if (x != y && buffers[x].space == buffers[y].space && buffers[x].first >= 0 &&
          buffers[y].first >= 0 && buffers[x].persistent == buffers[y].persistent &&
          buffers[x].first <= buffers[y].last && buffers[y].first <= buffers[x].last)
        together.emplace_back(x, y);
  if (together.empty()) return false;
  const auto [x, y] = draw(together, random);
  MemoryPlan& memory = placed.memory[static_cast<std::size_t>(buffers[x].space)];
  const std::int64_t blocks = (buffers[y].bytes + buffer_alignment - 1) / buffer_alignment;
  memory.offsets[x] =
      memory.offsets[y] +
      buffer_alignment * static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(blocks));
  memory.arena_bytes = std::max(memory.arena_bytes, memory.offsets[x] + buffers[x].bytes);
  return true;
}

bool move_to_another_stream(PlacedPlan& placed, Random& random) {
  Action& action = draw(placed.plan.actions, random);
  action.stream = static_cast<Stream>(
      (static_cast<std::uint64_t>(action.stream) + 1 + random() % (streams - 1)) % streams);
  return true;
}

TEST(Proof, RefusesEveryMutantThatIsBroken) {
  struct Count {
    int killed = 0;      // broken and refused
    int strict = 0;      // refused for its form, though no order would show it
    int equivalent = 0;  // proven, and the same in every order
    int other = 0;       // proven, and in every order the same other step: the proof can't know
                         // which one was meant
  };
  const std::vector<std::pair<std::string, PlacedMutation>> mutations = {
      {"dropped wait", drop_a_wait<true>},
      {"dropped wait beside the device", drop_a_wait<false>},
      {"swapped actions", swap_two_actions},
      {"shortened lifetime", shorten_a_lifetime<true>},
      {"shortened lifetime on the host", shorten_a_lifetime<false>},
      {"lost copy", lose_a_copy},
      {"overlapped offsets", overlap_two_buffers},
      {"moved to another stream", move_to_another_stream}};
  std::map<std::string, Count> counts;
  Random random(4);
  for (int base = 0; base < trials(250); ++base) {
    const RandomPlan made = random_plan(random, 2, 4, 3);
    const PlacedPlan whole = place(made.plan);
    const Outcome reference = meaning(whole);
    for (const auto& [name, mutate] : mutations)
      for (int i = 0; i < 20; ++i) {
        const std::uint64_t seed = random();
        const std::string which =
            text(name, " with seed ", seed, " of a plan for ", made.described);
        PlacedPlan mutant = whole;
        Random its_random(seed);
        if (!mutate(mutant, its_random)) continue;
        const bool broken = is_broken(mutant);
        Count& count = counts[name];
        if (!is_proven(mutant)) {
          ++(broken ? count.killed : count.strict);
          continue;
        }
        ASSERT_FALSE(broken) << which;
        // Accepted: then no order may come to anything else.
        const Outcome meant = meaning(mutant);
        SymbolicMachine machine(mutant);
        for (int order = 0; order < 50; ++order) {
          const std::vector<int> actions = random_order(mutant.plan, its_random);
          ASSERT_EQ(actions.size(), mutant.plan.actions.size()) << which;
          ASSERT_EQ(machine.run(actions), meant) << which;
        }
        ++(meant == reference ? count.equivalent : count.other);
      }
  }
  int killed = 0;
  for (const auto& [name, count] : counts) {
    std::printf("%-31s %5d killed %5d refused for their form %5d equivalent %5d another step\n",
                name.c_str(), count.killed, count.strict, count.equivalent, count.other);
    EXPECT_GT(count.killed, 0) << name;
    // Only a swap changes what plan order comes to.
    EXPECT_TRUE(count.other == 0 || name == "swapped actions") << name;
    killed += count.killed;
  }
  EXPECT_EQ(counts.size(), mutations.size());
  EXPECT_GE(killed, trials(500));
}

}  // namespace
}  // namespace ostrakon::tests
