// SPDX-License-Identifier: Apache-2.0
#include "plan_fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/checks.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/report_text.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/train/make_trainer.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::apps {
namespace {

using config::Settings;

/// A key of the deck that is varied.
struct Varied {
  const char* section;
  const char* name;

  const config::Key& key() const { return *config::find_key(*config::find_section(section), name); }

  std::string get(const Settings& settings) const {
    const config::Value value = key().get(settings);
    return value.kind == config::Value::Kind::text ? value.text : value.shown();
  }
  void set(Settings& settings, const std::string& value) const {
    const bool done = key().set(settings, config::parse_scalar(value));
    require(done, section, ".", name, " = ", value, ": expected ", key().expected);
  }
};

constexpr Varied sharding{"parallel", "sharding"};
constexpr Varied shard_group{"parallel", "shard_group"};
constexpr Varied reshard_after_forward{"parallel", "reshard_after_forward"};
constexpr Varied accumulation{"parallel", "accumulation"};
constexpr Varied forward_prefetch{"parallel", "forward_prefetch"};
constexpr Varied backward_prefetch{"parallel", "backward_prefetch"};
constexpr Varied in_flight_gathers{"parallel", "in_flight_gathers"};
constexpr Varied in_flight_reductions{"parallel", "in_flight_reductions"};
constexpr Varied gather{"precision", "gather"};
constexpr Varied activations{"precision", "activations"};
constexpr Varied reduce{"precision", "reduce"};
constexpr Varied checkpointing{"memory", "activation_checkpointing"};
constexpr Varied offload{"memory", "offload"};
constexpr Varied saved_in{"memory", "activations"};
constexpr Varied micro_batch_size{"training", "micro_batch_size"};
constexpr Varied varied[] = {sharding,
                             shard_group,
                             reshard_after_forward,
                             accumulation,
                             forward_prefetch,
                             backward_prefetch,
                             in_flight_gathers,
                             in_flight_reductions,
                             gather,
                             activations,
                             reduce,
                             checkpointing,
                             offload,
                             saved_in,
                             micro_batch_size};

/// Values of some keys together; none: as the deck says.
struct Assignment {
  const Varied* key;
  std::string value;
};
using Choice = std::vector<Assignment>;
using Choices = std::vector<Choice>;

Choices choices_of(const Varied& key, const std::vector<std::string>& values) {
  Choices choices = {{}};
  for (const std::string& value : values) choices.push_back({{&key, value}});
  return choices;
}

Choices precision_choices(const Settings& deck, bool any_precision) {
  Choices choices = {{}};
  if (!any_precision) return choices;
  for (const auto& [gathered, reduced] :
       {std::pair("fp32", "fp32"), std::pair("bf16", "bf16"), std::pair("bf16", "fp32")}) {
    choices.push_back({{&gather, gathered}, {&reduce, reduced}});
    // Named in the deck, they would have to be named anew.
    if (deck.precision.activations) choices.back().push_back({&activations, "auto"});
  }
  return choices;
}

Choices micro_batch_choices(const Settings& deck, int ranks) {
  const std::int64_t sequences = deck.training.global_batch_size;
  Choices choices = {{}};
  for (std::int64_t size = 1; size <= sequences / ranks; size *= 2)
    if (sequences % (size * ranks) == 0)
      choices.push_back({{&micro_batch_size, std::to_string(size)}});
  return choices;
}

/// Not `always`, than which `default` takes no more time or memory. Parts on the ranks of a node
/// where groups are larger.
Choices reshard_choices(const FitRequest& request) {
  std::vector<std::string> values = {"default", "never"};
  const int node = request.ranks_per_node;
  if (node > 1 && node < request.ranks && request.ranks % node == 0)
    values.push_back(std::to_string(node));
  return choices_of(reshard_after_forward, values);
}

/// How much runs ahead of compute or behind it: as the deck says, then what most have, then more,
/// some of it with a bound on what is gathered, then less.
Choices overlap_choices(std::int64_t gather_bytes) {
  const auto choice = [](const std::string& forward, const std::string& backward,
                         const std::string& gathers, const std::string& reductions) {
    return Choice{{&forward_prefetch, forward},
                  {&backward_prefetch, backward},
                  {&in_flight_gathers, gathers},
                  {&in_flight_reductions, reductions}};
  };
  const std::string none = "unlimited";
  const std::string bound = text((gather_bytes >> 20) + 1, " MiB");
  return {{},
          choice("1", "1", none, "1"),
          choice("2", "2", none, "2"),
          choice("2", "2", bound, "1"),
          choice("1", "1", none, "0"),
          choice("0", "0", none, "0")};
}

/// Enough for two ordinary units, or for the largest visit alone: bytes of gathered parameters.
std::int64_t gather_bound(const plan::ModelDescription& model, int ranks) {
  const std::int64_t block = plan::shard_alignment * ranks;
  std::vector<std::int64_t> units;
  for (const plan::UnitDescription& unit : model.units)
    units.push_back((unit.parameter_elements / block + 2) * block * model.element_bytes);
  std::int64_t most = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const int tied_to = model.units[u].tied_to;
    most = std::max(most, units[u] + (tied_to < 0 ? 0 : units[static_cast<std::size_t>(tied_to)]));
  }
  std::nth_element(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(units.size() / 2),
                   units.end());
  return std::max(most, 2 * units[units.size() / 2]);
}

/// Ascending: what is kept on the host costs copies.
Choices host_choices() {
  Choices choices;
  for (const char* state : {"none", "optimizer", "parameters", "all"})
    for (const char* saved : {"device", "host"})
      choices.push_back({{&offload, state}, {&saved_in, saved}});
  return choices;
}

/// `shard_group` of the deck in ranks.
int group_ranks(const Settings& settings, const FitRequest& request) {
  return settings.shard_group == mesh::world_group  ? request.ranks
         : settings.shard_group == mesh::node_group ? request.ranks_per_node
                                                    : settings.shard_group;
}

/// Resets to the deck's value every setting that has no effect given the others.
void simplify(Settings& settings, const Settings& deck, const FitRequest& request) {
  plan::Policy& policy = settings.parallel;
  const plan::Policy& of_deck = deck.parallel;
  const int group = group_ranks(settings, request);
  if (group == group_ranks(deck, request)) settings.shard_group = deck.shard_group;
  // Parts as small as shards are those that a rank has anyway.
  if (policy.reshard_after_forward.kind == plan::Reshard::partly &&
      policy.reshard_after_forward.ranks >= group)
    policy.reshard_after_forward = plan::Reshard();
  if (group == 1) {
    policy.sharding = of_deck.sharding;
    policy.reduce = of_deck.reduce;
  }
  if (request.ranks == 1) policy.accumulation = of_deck.accumulation;
  const plan::Layouts layouts = plan::find_layouts(
      policy, config::without_units(settings),
      plan::Grid(1, group, std::max(1, request.ranks / group)), plan::Purpose::train);
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
    other.shard_group = group;
    return plan::accumulation_of(other, plan::one_level(request.ranks, other));
  };
  for (const Accumulation same : {of_deck.accumulation, Accumulation::automatic}) {
    if (resolved(policy.accumulation) != resolved(same) &&
        settings.training.leaves() != request.ranks)
      continue;
    policy.accumulation = same;
    break;
  }
}

std::string written(const Settings& settings) {
  std::string text;
  for (const Varied& key : varied) text += key.get(settings) + "\n";
  return text;
}

void set(Settings& settings, const Choice& choice) {
  for (const Assignment& one : choice) one.key->set(settings, one.value);
}

/// Without choices equivalent to an earlier one.
Choices distinct(Choices choices, const Settings& deck) {
  std::set<std::string> seen;
  choices.erase(std::remove_if(choices.begin(), choices.end(),
                               [&](const Choice& choice) {
                                 Settings settings = deck;
                                 set(settings, choice);
                                 return !seen.insert(written(settings)).second;
                               }),
                choices.end());
  return choices;
}

/// All settings to choose from, as candidates of plans.
class Space {
 public:
  Space(const Settings& deck, const FitRequest& request) : deck_(deck), request_(request) {
    std::vector<Choices> axes = {
        choices_of(sharding, {"none", "optimizer", "gradients", "full"}),
        choices_of(shard_group, {"world", "node"}),
        reshard_choices(request),
        choices_of(accumulation, {"auto", "reduce_last"}),
        choices_of(checkpointing, {"none", "selective attention mlp norms", "every 2", "full"}),
        precision_choices(deck, request.any_precision),
        micro_batch_choices(deck, request.ranks),
        host_choices()};
    for (Choices& axis : axes) axis = distinct(std::move(axis), deck);
    std::vector<std::size_t> digits(axes.size(), 0);
    do {
      Settings settings = deck;
      for (std::size_t axis = 0; axis < axes.size(); ++axis)
        set(settings, axes[axis][digits[axis]]);
      for (const Choice& overlap : overlaps_of(settings)) {
        Settings one = settings;
        set(one, overlap);
        add(std::move(one));
      }
    } while (next(digits, axes));
    if (candidates_.empty() && error_) std::rethrow_exception(error_);
  }

  const std::vector<plan::Candidate>& candidates() const { return candidates_; }

  Throughput throughput_of(const plan::Fit& fit) const {
    const auto index = static_cast<std::size_t>(fit.candidate);
    return throughput(settings_[index], *candidates_[index].model, request_.ranks, fit.seconds,
                      request_.rates.flops);
  }

  /// SECTION.KEY=VALUE of all that a candidate has otherwise than the deck.
  std::vector<std::string> changes(int candidate) const {
    std::vector<std::string> changes;
    const Settings& settings = settings_[static_cast<std::size_t>(candidate)];
    for (const Varied& key : varied) {
      const std::string value = key.get(settings);
      if (value != key.get(deck_)) changes.push_back(text(key.section, ".", key.name, "=", value));
    }
    return changes;
  }

 private:
  /// The last digit is the fastest.
  static bool next(std::vector<std::size_t>& digits, const std::vector<Choices>& axes) {
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      if (++digits[axis] < axes[axis].size()) return true;
      digits[axis] = 0;
    }
    return false;
  }

  Choices overlaps_of(Settings settings) {
    try {
      place_on_ranks(settings, request_.ranks, request_.ranks_per_node);
    } catch (const Error&) {
      return {{}};  // add() says why
    }
    return overlap_choices(gather_bound(model(settings), request_.ranks));
  }

  void add(Settings settings) {
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

  /// The same for all that differ only in overlap, or in what is on the host: the most wanted come
  /// first, as the last axes are the fastest.
  int family(Settings settings) {
    for (const Varied* key : {&forward_prefetch, &backward_prefetch, &in_flight_reductions})
      key->set(settings, "0");
    in_flight_gathers.set(settings, "unlimited");
    offload.set(settings, "none");
    saved_in.set(settings, "device");
    simplify(settings, deck_, request_);
    return families_.emplace(written(settings), static_cast<int>(families_.size())).first->second;
  }

  const plan::ModelDescription& model(const Settings& settings) {
    const std::string which = gather.get(settings) + "\n" + checkpointing.get(settings) + "\n" +
                              micro_batch_size.get(settings);
    const auto found = models_.find(which);
    if (found != models_.end()) return found->second;
    return models_
        .emplace(which, train::describe(*train::make_decoder(settings), settings.optimizer))
        .first->second;
  }

  const Settings& deck_;
  const FitRequest& request_;
  std::vector<plan::Candidate> candidates_;
  std::vector<Settings> settings_;  // of each candidate, before it is placed on ranks
  std::set<std::string> seen_;
  std::map<std::string, int> families_;
  std::map<std::string, plan::ModelDescription> models_;
  std::exception_ptr error_;  // the first
};

/// As a shell takes it.
std::string options(const std::vector<std::string>& changes) {
  if (changes.empty()) return "as the deck says";
  std::string text;
  for (const std::string& change : changes) {
    const bool plain = change.find_first_of(" ;*:'\"") == std::string::npos;
    text += (text.empty() ? "--set " : " --set ") + (plain ? change : "'" + change + "'");
  }
  return text;
}

/// "64 ranks, 8 on each node"
std::string ranks_text(const FitRequest& request) {
  return text(format_count(request.ranks), request.ranks == 1 ? " rank, " : " ranks, ",
              format_count(request.ranks_per_node), " on each node");
}

/// Whether host memory is.
bool is_bounded(const FitRequest& request) {
  return request.room.host_bytes != plan::Room().host_bytes;
}

template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  char line[256];
  std::snprintf(line, sizeof line, format, arguments...);
  return line;
}

/// "80.00 GiB of a rank's device memory and 200.00 GiB of the host's memory for it"
std::string room_text(const FitRequest& request) {
  std::string room = format_bytes(request.room.device_bytes) + " of a rank's device memory";
  if (is_bounded(request))
    room += " and " + format_bytes(request.room.host_bytes) + " of the host's memory for it";
  return room;
}

void write_text(const Space& space, const FitRequest& request, const plan::Fits& fits,
                std::ostream& out) {
  const auto column = [&](std::int64_t plan::Fit::*bytes) {
    return std::any_of(fits.best.begin(), fits.best.end(),
                       [&](const plan::Fit& fit) { return fit.*bytes > 0; });
  };
  const bool copies = column(&plan::Fit::bytes_copied), on_host = column(&plan::Fit::bytes_on_host);
  out << "settings whose arena fits " << room_text(request) << " (" << ranks_text(request)
      << "), fastest first\n"
      << print("  %10s %12s %8s %10s %12s %12s %18s %14s %14s", "seconds", "tokens/s", "MFU",
               "exposed", "arena", "host arena", "computing", "inside a node", "across nodes")
      << (copies ? print(" %12s", "copied") : "") << (on_host ? print(" %12s", "on the host") : "")
      << print(" %16s", "bits of one rank") << "\n";
  for (const plan::Fit& fit : fits.best) {
    const Throughput made = space.throughput_of(fit);
    out << print("  %#10.4g %12s %6.1f %% %10.3g %12s %12s %18s %14s %14s", fit.seconds,
                 format_count(std::llround(made.tokens_per_second)).c_str(), 100.0 * made.mfu,
                 fit.exposed_communication, format_bytes(fit.arena_bytes).c_str(),
                 format_bytes(fit.host_arena_bytes).c_str(), plan::format_flops(fit.flops).c_str(),
                 format_bytes(fit.bytes_inside_nodes).c_str(),
                 format_bytes(fit.bytes_across_nodes).c_str())
        << (copies ? print(" %12s", format_bytes(fit.bytes_copied).c_str()) : "")
        << (on_host ? print(" %12s", format_bytes(fit.bytes_on_host).c_str()) : "")
        << print(" %16s", fit.bits_of_one_rank ? "yes" : "no") << "\n    "
        << options(space.changes(fit.candidate)) << "\n";
  }
  out << "\nseconds: of a step, by its streams and waits,\n"
      << plan::rates_text(request.rates, true) << "\n"
      << "exposed: of these, those in which a rank communicates and does not compute\n"
      << "bits of one rank: whether sums over leaves are bit for bit those of one rank;\n"
      << "no: those but for rounding\n"
      << "of " << format_count(static_cast<std::int64_t>(space.candidates().size()))
      << " settings, " << format_count(fits.planned)
      << " were planned; of the others, known without a plan,\n"
      << format_count(fits.too_large) << " are too large, " << format_count(fits.too_slow)
      << " take longer than these, " << format_count(fits.unneeded)
      << " are no faster than others that differ in overlap or the host's part alone";
  if (fits.impossible > 0) out << ", " << format_count(fits.impossible) << " can't be planned";
  out << "\n";
}

void write_json(const Space& space, const FitRequest& request, const plan::Fits& fits,
                std::ostream& out) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const plan::Fit& fit : fits.best) {
    const Throughput made = space.throughput_of(fit);
    rows.push_back({{"set", space.changes(fit.candidate)},
                    {"seconds", fit.seconds},
                    {"exposed_communication_seconds", fit.exposed_communication},
                    {"tokens_per_second", made.tokens_per_second},
                    {"mfu", made.mfu},
                    {"arena_bytes", fit.arena_bytes},
                    {"host_arena_bytes", fit.host_arena_bytes},
                    {"flops", fit.flops},
                    {"bytes_inside_nodes", fit.bytes_inside_nodes},
                    {"bytes_across_nodes", fit.bytes_across_nodes},
                    {"bytes_copied", fit.bytes_copied},
                    {"bytes_on_host", fit.bytes_on_host},
                    {"bits_of_one_rank", fit.bits_of_one_rank}});
  }
  const plan::Rates& rates = request.rates;
  const Json json = {{"format", 1},
                     {"fit_bytes", request.room.device_bytes},
                     {"host_bytes", is_bounded(request) ? Json(request.room.host_bytes) : Json()},
                     {"ranks", request.ranks},
                     {"ranks_per_node", request.ranks_per_node},
                     {"flops_per_second", rates.flops},
                     {"bytes_per_second_inside_nodes", rates.bytes_inside_nodes},
                     {"bytes_per_second_across_nodes", rates.bytes_across_nodes},
                     {"bytes_per_second_copied", rates.bytes_copied},
                     {"bytes_per_second_on_host", rates.bytes_on_host},
                     {"candidates", space.candidates().size()},
                     {"too_large_without_planning", fits.too_large},
                     {"too_slow_without_planning", fits.too_slow},
                     {"unneeded", fits.unneeded},
                     {"impossible", fits.impossible},
                     {"planned", fits.planned},
                     {"settings", rows}};
  out << json.dump(2) << "\n";
}

}  // namespace

void place_on_ranks(Settings& settings, int ranks, int ranks_per_node) {
  settings.ranks_per_node = ranks_per_node;
  config::check_ranks(settings, ranks);
  const int group = settings.shard_group;
  require(group <= 0 || ranks % group == 0, "parallel.shard_group = ", group,
          " does not divide the ", ranks, ranks == 1 ? " rank" : " ranks");
  config::complete(settings);
  settings.parallel.ranks_per_node = ranks_per_node;
  settings.parallel.shard_group = group == mesh::world_group  ? ranks
                                  : group == mesh::node_group ? ranks_per_node
                                                              : group;
}

Throughput throughput(const Settings& settings, const plan::ModelDescription& model, int ranks,
                      double seconds, double flops) {
  const config::TrainingSettings& training = settings.training;
  const auto tokens = static_cast<double>(training.global_batch_size * training.sequence_length);
  const double of_rank = plan::model_flops(model) * static_cast<double>(training.leaves()) /
                         static_cast<double>(ranks);
  return {tokens / seconds, of_rank / seconds / flops};
}

void show_fits(const Settings& deck, const FitRequest& request, bool json, std::ostream& out) {
  constexpr std::size_t most = 10;
  const Space space(deck, request);
  const plan::Fits fits = plan::find_fits(space.candidates(), request.ranks, request.ranks_per_node,
                                          request.room, request.rates, most);
  if (fits.best.empty()) {
    const int smallest = fits.smallest.candidate;
    require(smallest >= 0, "nothing fits --host-bytes: no settings need as little of the host's ",
            "memory as ", format_bytes(request.room.host_bytes), " for a rank (",
            ranks_text(request), ")");
    throw Error(text("nothing fits ", room_text(request), " (", ranks_text(request),
                     "); the smallest arena in device memory",
                     is_bounded(request) ? ", of settings within --host-bytes," : "", " takes ",
                     format_bytes(fits.smallest.arena_bytes),
                     fits.smallest.bits_of_one_rank ? "" : ", without the bits of one rank", ": ",
                     options(space.changes(smallest))));
  }
  (json ? write_json : write_text)(space, request, fits, out);
}

}  // namespace ostrakon::apps
