// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/preflight/preflight.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/data/data_settings.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <ostrakon/preflight/compute.hpp>
#include <ostrakon/preflight/links.hpp>
#include <ostrakon/preflight/network.hpp>
#include <ostrakon/preflight/places.hpp>
#include <utility>

namespace ostrakon::preflight {
namespace {

/// The answers of all ranks, on all ranks. Most ranks state the facts of rank 0, which are sent
/// once.
Table gather(comm::Communicator& world, const std::vector<std::string>& hosts,
             const Answer& answer) {
  const std::string first = world.broadcast(pack_facts(answer.facts), 0);
  const Facts usual = unpack_facts(first);
  constexpr char as_first = '=', own = '+';
  const bool is_usual = pack_facts(answer.facts) == first;
  const std::string mine = is_usual ? as_first + pack({answer.rates, {}}) : own + pack(answer);
  Table table;
  table.hosts = hosts;
  for (const std::string& packed : world.gather_texts(mine)) {
    table.answers.push_back(unpack(packed.substr(1)));
    if (packed[0] == as_first) table.answers.back().facts = usual;
  }
  return table;
}

/// The bytes of messages between two ranks: the most that a rank sends to another in a collective
/// of the plan, within what is quickly measured.
std::int64_t message_bytes(const plan::StepPlan* plan) {
  constexpr std::int64_t least = 1 << 20, usual = 4 << 20, most = 64 << 20;
  if (plan == nullptr) return usual;
  std::int64_t bytes = 0;
  for (const plan::Action& action : plan->actions)
    bytes = std::max(bytes, plan::message_bytes(action));
  return std::clamp(bytes, least, most);
}

/// Leaves a check without a judge: where ranks outnumber cores, messages wait until the other rank
/// has one, mostly much longer than they take.
void only_show(Check& check) {
  check.may_vary = false;
  check.judge = [name = check.name](const Table&) {
    return Findings{{name,
                     "ranks outnumber cores, so these rates are shown, and not compared",
                     {},
                     {},
                     "to compare them, start a rank for each core",
                     false}};
  };
}

}  // namespace

std::vector<Check> all_checks(mesh::Mesh& mesh, const Options& options) {
  comm::Communicator& world = mesh.world();
  const simulate::Machine* const machine = options.machine ? &*options.machine : nullptr;
  const double seconds = options.seconds;
  // Ranks of other stages have other plans, and all pairs exchange as much.
  auto bytes = static_cast<double>(message_bytes(options.plan));
  world.all_reduce_max(&bytes, 1);
  std::vector<Check> checks = {versions(world, options.files),
                               products(seconds, options.faults, machine), steps(0.5 * seconds),
                               memory(0.5 * seconds, machine)};
  if (!on_device) checks.push_back(clock(0.2 * seconds));
  if (world.size() > 1) {
    const std::vector<Collective> measured =
        options.plan != nullptr ? collectives_of(*options.plan, mesh) : usual_collectives(world);
    checks.push_back(
        links(world, static_cast<std::int64_t>(bytes), 0.2 * seconds, options.faults, machine));
    checks.push_back(collectives(world, measured, 0.2 * seconds, machine));
    if (!on_device && mesh.cores() == 0)
      for (auto check = checks.end() - 2; check != checks.end(); ++check) only_show(*check);
  }
  checks.push_back(network(world));
  checks.push_back(folder(world, options.folder));
  return checks;
}

int Report::faults() const {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [](const Finding& one) { return one.is_fault; }));
}

Report inspect(comm::Communicator& world, const std::vector<Check>& checks, int repeats) {
  const Stopwatch since;
  const std::vector<std::string> hosts = world.gather_texts(host_name());
  Report report;
  for (const Check& check : checks) {
    world.barrier();
    Answer answer = check.measure();
    Report::Part part{check, gather(world, hosts, answer)};
    // Tables and judges are the same on all ranks, and so is what they decide here.
    Findings found = check.judge(part.table);
    for (int i = 0; i < repeats && check.may_vary && !found.empty(); ++i) {
      world.barrier();
      answer = best_of(answer, check.measure());
      part.table = gather(world, hosts, answer);
      ++part.measurements;
      found = check.judge(part.table);
    }
    append(report.findings, found);
    report.parts.push_back(std::move(part));
  }
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.is_fault > b.is_fault; });
  report.seconds = since.seconds();
  world.all_reduce_max(&report.seconds, 1);
  return report;
}

std::string require_sound(mesh::Mesh& mesh, const config::Settings& settings,
                          const plan::StepPlan& plan) {
  Options options;
  options.folder = settings.output.directory;
  for (const data::WeightedFile& file : data::read_files(settings.data.path))
    options.files.push_back(file.path);
  options.plan = &plan;
  const Report report = inspect(mesh.world(), all_checks(mesh, options));
  if (report.faults() > 0)
    throw CollectiveError(text("runtime.preflight = true: ", report.faults(),
                               " faults found before step 1, see "
                               "docs/operations.md\n",
                               describe_findings(report)));
  return describe_findings(report);
}

}  // namespace ostrakon::preflight
