// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan --kernels: what a step launches on a device, call by call, beside what each call
// can't but read and write.
#include <algorithm>
#include <iostream>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/counted_form.hpp>
#include <ostrakon/trainer/make_trainer.hpp>

#include "show.hpp"

namespace ostrakon::apps::plan_program {
namespace {

using Json = nlohmann::ordered_json;
using plan::Action;
using plan::Kind;
using train::SubmittedCall;
using train::SubmittedKernels;

/// What bounds the kernels of a call.
enum class Bound { products, attention, memory };
constexpr Named<Bound> bound_names[] = {
    {Bound::products, "product"}, {Bound::attention, "attention"}, {Bound::memory, "memory"}};

Bound bound_of(const SubmittedCall& call) {
  return call.work.products > 0.0          ? Bound::products
         : call.work.attention_flops > 0.0 ? Bound::attention
                                           : Bound::memory;
}

/// The phases of a unit in the first micro-batch, as their actions.
using Passes = std::vector<std::pair<Kind, int>>;

/// Units whose passes submit the same.
struct AlikeUnits {
  std::vector<std::string> names;
  Passes passes;
};

std::vector<AlikeUnits> alike_units(const plan::StepPlan& plan,
                                    const train::Submissions& submitted) {
  std::vector<Passes> of(plan.units.size());
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    const bool computes = action.kind == Kind::forward || action.kind == Kind::recompute ||
                          action.kind == Kind::backward;
    if (computes && action.micro_batch == 0 && submitted.like[a] >= 0)
      of[static_cast<std::size_t>(action.unit)].emplace_back(action.kind, submitted.like[a]);
  }
  std::vector<AlikeUnits> all;
  for (std::size_t u = 0; u < of.size(); ++u) {
    const auto alike = std::find_if(all.begin(), all.end(),
                                    [&](const AlikeUnits& units) { return units.passes == of[u]; });
    if (alike == all.end())
      all.push_back({{plan.units[u].name}, of[u]});
    else
      alike->names.push_back(plan.units[u].name);
  }
  return all;
}

/// What several calls come to.
struct Totals {
  std::map<Bound, int> kernels;
  int besides = 0;                               ///< kernels of no call: gaps that are cleared
  double flops = 0.0, bytes = 0.0, floor = 0.0;  ///< bytes and floor: of what memory bounds

  void add(const SubmittedCall& call) {
    const Bound bound = bound_of(call);
    kernels[bound] += static_cast<int>(call.kernels.size());
    flops += call.flops;
    if (bound != Bound::memory) return;
    bytes += call.work.row_bytes;
    floor += call.floor_bytes;
  }
  void add(const SubmittedKernels& action) {
    besides += static_cast<int>(action.names.size());
    for (const SubmittedCall& call : action.calls) {
      add(call);
      besides -= static_cast<int>(call.kernels.size());
    }
  }
  int all() const {
    int sum = besides;
    for (const auto& [bound, count] : kernels) sum += count;
    return sum;
  }
};

/// How often the `period` names from `first` on follow each other.
std::ptrdiff_t repeats(const std::string* first, const std::string* last, std::ptrdiff_t period) {
  std::ptrdiff_t times = 1;
  while (last - first >= (times + 1) * period &&
         std::equal(first, first + period, first + times * period))
    ++times;
  return times;
}

/// Names in the order of their launches, with what repeats as one: "clear, 8 x (product, 2 x add)".
std::string names_text(const std::string* first, const std::string* last) {
  std::string all;
  while (first != last) {
    std::ptrdiff_t period = 1, times = repeats(first, last, 1);
    for (std::ptrdiff_t longer = 2; longer <= (last - first) / 2; ++longer) {
      const std::ptrdiff_t more = repeats(first, last, longer);
      if (more == 1 || more * longer <= times * period) continue;
      period = longer;
      times = more;
    }
    const std::string names =
        period == 1 ? *first : text("(", names_text(first, first + period), ")");
    all += text(all.empty() ? "" : ", ", times > 1 ? text(times, " x ") : "", names);
    first += times * period;
  }
  return all;
}

std::string names_text(const std::vector<const char*>& launched) {
  const std::vector<std::string> names(launched.begin(), launched.end());
  return names_text(names.data(), names.data() + names.size());
}

std::string megabytes(double bytes) { return bytes > 0.0 ? print("%.1f", bytes / 1e6) : ""; }

std::string ratio(double bytes, double floor) {
  return bytes > 0.0 && floor > 0.0 ? print("%.2f", bytes / floor) : "";
}

void show_units(const AlikeUnits& units, const train::Submissions& submitted, std::ostream& out) {
  std::size_t longest = 0;
  for (const auto& [kind, action] : units.passes)
    for (const SubmittedCall& call : submitted.distinct.at(action).calls)
      longest = std::max(longest, call.name.size());
  const int width = static_cast<int>(longest);
  out << "\n" << units.names.front();
  if (units.names.size() > 1) {
    const std::size_t others = units.names.size() - 1;
    out << " and " << others << (others == 1 ? " other alike" : " others alike");
  }
  out << ", in a micro-batch\n"
      << print("  %-9s %-*s %-9s %7s %9s %9s %9s %6s  %s\n", "pass", width, "call", "bound by",
               "kernels", "GFLOP", "MB", "floor MB", "ratio", "names");
  Totals totals;
  for (const auto& [kind, action] : units.passes) {
    const SubmittedKernels& kernels = submitted.distinct.at(action);
    totals.add(kernels);
    for (const SubmittedCall& call : kernels.calls) {
      const Bound bound = bound_of(call);
      out << print(
          "  %-9s %-*s %-9s %7d %9s %9s %9s %6s  %s\n", plan::name(kind), width, call.name.c_str(),
          name_in(bound_names, bound), static_cast<int>(call.kernels.size()),
          call.flops > 0.0 ? print("%.1f", call.flops / 1e9).c_str() : "",
          megabytes(call.work.row_bytes).c_str(), megabytes(call.floor_bytes).c_str(),
          bound == Bound::memory ? ratio(call.work.row_bytes, call.floor_bytes).c_str() : "",
          names_text(call.kernels).c_str());
    }
  }
  out << "  in all " << totals.all() << " kernels: " << totals.kernels[Bound::products]
      << " of products, " << totals.kernels[Bound::attention] << " of attention, "
      << totals.kernels[Bound::memory] << " bound by memory, " << totals.besides << " others; "
      << megabytes(totals.bytes) << " MB moved by those bound by memory, at least "
      << megabytes(totals.floor) << " MB\n";
}

/// How often a step launches each kernel.
std::map<std::string, std::int64_t> launches_of_step(const train::Submissions& submitted) {
  std::map<std::string, std::int64_t> launches;
  for (const int like : submitted.like)
    if (like >= 0)
      for (const char* const name : submitted.distinct.at(like).names) ++launches[name];
  return launches;
}

Json units_json(const AlikeUnits& units, const train::Submissions& submitted) {
  Json calls = Json::array();
  Totals totals;
  for (const auto& [kind, action] : units.passes) {
    const SubmittedKernels& kernels = submitted.distinct.at(action);
    totals.add(kernels);
    for (const SubmittedCall& call : kernels.calls)
      calls.push_back({{"pass", plan::name(kind)},
                       {"call", call.name},
                       {"bound_by", name_in(bound_names, bound_of(call))},
                       {"kernels", call.kernels},
                       {"flops", call.flops},
                       {"bytes", call.work.row_bytes},
                       {"floor_bytes", call.floor_bytes}});
  }
  return {{"units", units.names},
          {"kernels", totals.all()},
          {"kernels_of_products", totals.kernels[Bound::products]},
          {"kernels_of_attention", totals.kernels[Bound::attention]},
          {"kernels_bound_by_memory", totals.kernels[Bound::memory]},
          {"bytes", totals.bytes},
          {"floor_bytes", totals.floor},
          {"calls", calls}};
}

}  // namespace

std::optional<train::Submissions> submissions_of(const config::Settings& settings,
                                                 const model::Model& model,
                                                 const std::vector<plan::StepPlan>& stages,
                                                 const runtime::Program& shown) {
  const train::ShardLayout layout(stages, model, settings.optimizer,
                                  shown.plan.stage * shown.plan.grid.ranks_of_stage());
  return train::count_submissions(shown, layout,
                                  train::StepSettings(train::trainer_settings(settings), model));
}

bool counts(const config::Settings& settings) {
  const math::KernelForm counted = math::counted_form();
  return math::is_of_device(counted) && settings.processor.kernels == counted;
}

void require_counted(const config::Settings& settings) {
  const auto name_of = [](math::KernelForm form) { return name_in(math::kernel_form_names, form); };
  const math::KernelForm counted = math::counted_form();
  require(counts(settings), "--kernels: found ranks that compute on ",
          name_of(settings.processor.kernels), ", expected ",
          math::is_of_device(counted)
              ? text("--device ", name_of(counted), ", whose kernels this build counts")
              : text("a build that counts a device's kernels"));
}

void show_kernels(const plan::StepPlan& plan, const train::Submissions& submitted, bool json,
                  std::ostream& out) {
  const std::vector<AlikeUnits> units = alike_units(plan, submitted);
  const std::map<std::string, std::int64_t> launches = launches_of_step(submitted);
  if (json) {
    Json all = Json::array();
    for (const AlikeUnits& alike : units) all.push_back(units_json(alike, submitted));
    out << Json{{"units", all}, {"kernels_of_step", launches}, {"kernels", submitted.kernels}}.dump(
               2)
        << "\n";
    return;
  }
  for (const AlikeUnits& alike : units) show_units(alike, submitted, out);
  std::vector<std::pair<std::int64_t, std::string>> often;
  for (const auto& [name, count] : launches) often.emplace_back(-count, name);
  std::sort(often.begin(), often.end());
  out << "\nlaunched in a step: " << format_count(submitted.kernels) << " kernels\n";
  for (const auto& [count, name] : often)
    out << print("  %8lld  %s\n", static_cast<long long>(-count), name.c_str());
}

}  // namespace ostrakon::apps::plan_program
