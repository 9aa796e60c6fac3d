// SPDX-License-Identifier: Apache-2.0
#include "plan_fit_space.hpp"

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/checks.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/layout.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/train/make_trainer.hpp>
#include <utility>

#include "plan_fit_choices.hpp"

namespace ostrakon::apps::fit {

using config::Settings;

namespace {

/// `shard_group` of the deck in ranks of a stage, those of tensor groups included.
int group_ranks(const Settings& settings, const FitRequest& request) {
  const int ranks = ranks_of_stage(settings, request);
  return settings.shard_group == mesh::world_group  ? ranks
         : settings.shard_group == mesh::node_group ? std::min(ranks, request.ranks_per_node)
                                                    : settings.shard_group;
}

/// Resets to the deck's value every setting that has no effect given the others.
void simplify(Settings& settings, const Settings& deck, const FitRequest& request) {
  plan::Policy& policy = settings.parallel;
  const plan::Policy& of_deck = deck.parallel;
  const int tensor = static_cast<int>(settings.tensor);
  const int ranks = ranks_of_stage(settings, request);
  const int all = group_ranks(settings, request), group = std::max(1, all / tensor);
  if (all == group_ranks(deck, request)) settings.shard_group = deck.shard_group;
  // Parts as small as shards are those that a rank has anyway.
  if (policy.reshard_after_forward.kind == plan::Reshard::partly &&
      policy.reshard_after_forward.ranks >= group)
    policy.reshard_after_forward = plan::Reshard();
  if (group == 1) {
    policy.sharding = of_deck.sharding;
    policy.reduce = of_deck.reduce;
  }
  if (ranks == 1) policy.accumulation = of_deck.accumulation;
  const plan::Layouts layouts = plan::find_layouts(
      policy, config::without_units(settings),
      plan::Grid(1, group, std::max(1, ranks / (group * tensor)), 1, tensor), plan::Purpose::train);
  if (!layouts.gathers()) {
    policy.reshard_after_forward = of_deck.reshard_after_forward;
    policy.backward_prefetch = of_deck.backward_prefetch;
    policy.in_flight_gathers = of_deck.in_flight_gathers;
    if (!layouts.updates_ahead() && settings.optimizer.kind != optim::OptimizerKind::muon)
      policy.forward_prefetch = of_deck.forward_prefetch;
  }
  if (!layouts.reduces()) policy.in_flight_reductions = of_deck.in_flight_reductions;
  using plan::Accumulation;
  const auto resolved = [&](Accumulation choice) {
    Settings completed = settings;
    config::complete(completed);
    plan::Policy& other = completed.parallel;
    other.accumulation = choice;
    other.shard_group = all;
    return plan::accumulation_of(other, plan::one_level(ranks, other));
  };
  for (const Accumulation same : {of_deck.accumulation, Accumulation::automatic}) {
    if (resolved(policy.accumulation) != resolved(same) && settings.leaves() * tensor != ranks)
      continue;
    policy.accumulation = same;
    break;
  }
}

/// The last digit is the fastest.
bool next(std::vector<std::size_t>& digits, const std::vector<Choices>& axes) {
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    if (++digits[axis] < axes[axis].size()) return true;
    digits[axis] = 0;
  }
  return false;
}

}  // namespace

Space::Space(const Settings& deck, const FitRequest& request) : deck_(deck), request_(request) {
  const std::vector<Choices> axes = fit::axes(deck, request);
  std::vector<std::size_t> digits(axes.size(), 0);
  do {
    Settings settings = deck;
    for (std::size_t axis = 0; axis < axes.size(); ++axis) set(settings, axes[axis][digits[axis]]);
    for (const Choice& overlap : overlaps_of(settings)) {
      Settings one = settings;
      set(one, overlap);
      add(std::move(one));
    }
  } while (next(digits, axes));
  if (candidates_.empty() && error_) std::rethrow_exception(error_);
}

Throughput Space::throughput_of(const plan::Fit& fit) const {
  const auto index = static_cast<std::size_t>(fit.candidate);
  const plan::ModelDescription& model = *candidates_[index].model;
  const double peak = request_.machine
                          ? request_.machine->rates(model.element_bytes)->peak_or_products()
                          : request_.rates.flops;
  return throughput(settings_[index], model, request_.ranks, fit.seconds, peak);
}

std::vector<std::string> Space::changes(int candidate) const {
  std::vector<std::string> changes;
  const Settings& settings = settings_[static_cast<std::size_t>(candidate)];
  for (const Varied& key : varied) {
    const std::string value = key.get(settings);
    if (value != key.get(deck_)) changes.push_back(text(key.section, ".", key.name, "=", value));
  }
  return changes;
}

Choices Space::overlaps_of(Settings settings) {
  try {
    place_on_ranks(settings, request_.ranks, request_.ranks_per_node);
  } catch (const Error&) {
    return {{}};  // add() says why
  }
  return overlap_choices(gather_bound(model(settings), ranks_of_stage(settings, request_)));
}

void Space::add(Settings settings) {
  simplify(settings, deck_, request_);
  if (!seen_.insert(written(settings)).second) return;
  const Settings as_in_deck = settings;
  try {
    config::check_together(settings, "deck");
    place_on_ranks(settings, request_.ranks, request_.ranks_per_node);
  } catch (const Error&) {
    if (!error_) error_ = std::current_exception();
    return;
  }
  plan::Candidate candidate;
  candidate.model = &model(settings);
  candidate.policy = settings.parallel;
  candidate.family = family(as_in_deck);
  candidates_.push_back(candidate);
  settings_.push_back(as_in_deck);
}

int Space::family(Settings settings) {
  for (const Varied* key : {&forward_prefetch, &backward_prefetch, &in_flight_reductions})
    key->set(settings, "0");
  in_flight_gathers.set(settings, "unlimited");
  offload.set(settings, "none");
  saved_in.set(settings, "device");
  simplify(settings, deck_, request_);
  return families_.emplace(written(settings), static_cast<int>(families_.size())).first->second;
}

const plan::ModelDescription& Space::model(const Settings& settings) {
  const std::string which = gather.get(settings) + "\n" + checkpointing.get(settings) + "\n" +
                            micro_batch_size.get(settings);
  const auto found = models_.find(which);
  if (found != models_.end()) return found->second;
  return models_.emplace(which, train::describe(*train::make_decoder(settings), settings.optimizer))
      .first->second;
}

}  // namespace ostrakon::apps::fit
