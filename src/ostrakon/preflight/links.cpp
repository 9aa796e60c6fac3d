// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/preflight/links.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <ostrakon/preflight/judge.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/simulate/collectives.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <tuple>
#include <utility>

namespace ostrakon::preflight {
namespace {

constexpr std::int64_t float_bytes = sizeof(float);
constexpr const char* network_advice =
    "look for a port that is down or has errors, at the switch, and at what else uses the network";

/// Seconds of the fastest of the calls that all ranks of a group make within `seconds`; each call
/// takes as long as the slowest rank's.
double fastest(comm::Communicator& group, double seconds, const std::function<void()>& work) {
  work();
  constexpr int fewest = 3;
  double best = std::numeric_limits<double>::infinity();
  const Stopwatch since;
  double spent = 0.0;
  for (int calls = 0; calls < fewest || spent < seconds; ++calls) {
    group.barrier();
    const Stopwatch timer;
    work();
    double times[] = {timer.seconds(), since.seconds()};
    group.all_reduce_max(times, 2);
    best = std::min(best, times[0]);
    spent = times[1];
  }
  return best;
}

View<float*> floats(const runtime::Arena& memory, std::int64_t begin, std::int64_t count) {
  return {reinterpret_cast<float*>(memory.data()) + begin, count};
}

/// The exchanges between the two ranks of a pair that are timed, each by itself. On hosts these are
/// a message in each direction: whether MPI sends both at once depends on who is first, and one
/// direction may be slow alone. On devices both ranks send at once.
std::vector<std::function<void()>> exchanges(comm::Communicator& pair,
                                             [[maybe_unused]] const Exec& exec,
                                             const runtime::Arena& memory, std::int64_t count) {
  std::vector<std::function<void()>> all;
  if constexpr (on_device) {
    all.emplace_back([&pair, &exec, &memory, count] {
      pair.all_gather<float, OnDevice>(exec, floats(memory, 0, count),
                                       floats(memory, count, 2 * count));
      exec.fence();
    });
  } else {
    for (const int sender : {0, 1})
      all.emplace_back([&pair, &memory, count, sender] {
        if (sender == pair.rank())
          pair.send(memory.data(), count * float_bytes, 1 - sender);
        else
          pair.receive(memory.data(), count * float_bytes, sender);
      });
  }
  return all;
}

}  // namespace

Check links(comm::Communicator& world, std::int64_t bytes, double seconds, const Faults& faults,
            const simulate::Machine* machine) {
  Check check;
  check.name = "links";
  check.unit = "GB/s";
  check.may_vary = true;
  check.measure = [&world, bytes, seconds, faults] {
    Answer answer;
    const std::int64_t count = std::max<std::int64_t>(64, bytes / float_bytes / 64 * 64);
    const Exec exec;
    const runtime::Arena memory(3 * count * float_bytes);
    math::fill(exec, floats(memory, 0, 3 * count), 1.0F);
    exec.fence();
    for (int round = 0; 1 << round < world.size(); ++round) {
      const int other = world.rank() ^ 1 << round;
      comm::Communicator pair =
          comm::Communicator::split(world.mpi(), std::min(world.rank(), other));
      train::set_device_transport(pair);
      world.barrier();
      if (pair.size() == 1) continue;  // the other rank's number is above those that there are
      double slowest = 0.0;
      for (const std::function<void()>& exchange : exchanges(pair, exec, memory, count))
        slowest = std::max(slowest, fastest(pair, 0.5 * seconds, [&] {
                             if (faults.exchange)
                               faults.exchange(exchange, other);
                             else
                               exchange();
                           }));
      answer.rates[link_name(round)] = static_cast<double>(count * float_bytes) / slowest;
    }
    return answer;
  };
  const double inside = machine != nullptr ? machine->inside_nodes.bytes_per_second : 0.0;
  const double across = machine != nullptr ? machine->across_nodes.bytes_per_second : 0.0;
  check.judge = [inside, across](const Table& table) {
    return judge_links(table, "links", inside, across);
  };
  return check;
}

std::string Collective::name() const {
  return text(gathers ? "all-gather to " : "reduce-scatter of ", format_bytes(bytes), " over ",
              over);
}

namespace {

/// A group that measures collectives in the memory of kernels. Collective over it.
struct Group {
  std::shared_ptr<comm::Communicator> ranks;
  int per_host = 1;

  explicit Group(comm::Communicator made)
      : ranks(std::make_shared<comm::Communicator>(std::move(made))) {
    train::set_device_transport(*ranks);
    std::map<std::string, int> hosts;
    for (const std::string& host : ranks->gather_texts(host_name()))
      per_host = std::max(per_host, ++hosts[host]);
  }
};

constexpr const char* predicted = "predicted ";

/// The bytes per second that each rank sends, as the machine file lets expect.
double predicted_rate(const Collective& one, const simulate::Machine& machine) {
  const int ranks = one.group->size();
  const auto bytes = static_cast<double>(one.bytes);
  const simulate::CollectiveSeconds seconds =
      simulate::ring_seconds(machine, {ranks, one.ranks_per_host}, bytes);
  return bytes * (ranks - 1) / ranks / (seconds.latency + seconds.transfer);
}

double measured_rate(const Collective& one, double seconds) {
  const int ranks = one.group->size();
  const std::int64_t shard = std::max<std::int64_t>(64, one.bytes / float_bytes / ranks / 64 * 64);
  const Exec exec;
  const runtime::Arena memory((2 * ranks + 1) * shard * float_bytes);
  math::fill(exec, floats(memory, 0, (2 * ranks + 1) * shard), 1.0F);
  exec.fence();
  const View<float*> full = floats(memory, 0, ranks * shard);
  const View<float*> staging = floats(memory, ranks * shard, ranks * shard);
  const View<float*> part = floats(memory, std::int64_t{2} * ranks * shard, shard);
  const double best = fastest(*one.group, seconds, [&] {
    if (one.gathers)
      one.group->all_gather<float, OnDevice>(exec, part, full);
    else
      one.group->reduce_scatter<float, OnDevice>(exec, full, staging, part);
    exec.fence();
  });
  return static_cast<double>((ranks - 1) * shard * float_bytes) / best;
}

}  // namespace

std::vector<Collective> usual_collectives(comm::Communicator& world) {
  if (world.size() == 1) return {};
  const Group group(comm::Communicator::duplicate(world.mpi()));
  std::vector<Collective> all;
  for (const bool gathers : {true, false})
    for (const std::int64_t bytes : {std::int64_t{1} << 18, std::int64_t{1} << 24})
      all.push_back({gathers, bytes, text(world.size(), " ranks"), group.ranks, group.per_host});
  return all;
}

std::vector<Collective> collectives_of(const plan::StepPlan& plan, mesh::Mesh& mesh) {
  using Place = std::tuple<plan::Axis, int, int>;  // a span, with an order
  std::map<Place, std::map<bool, std::pair<std::int64_t, std::int64_t>>> sizes;
  for (const plan::Action& action : plan.actions) {
    const bool gathers = action.kind == plan::Kind::gather;
    if (!gathers && action.kind != plan::Kind::reduce_scatter) continue;
    const std::int64_t bytes = plan::array_bytes(action);
    if (bytes == 0 || action.span.ranks == 1) continue;
    auto& of_span = sizes[{action.span.axis, action.span.ranks, action.span.stride}];
    auto& [least, most] = of_span.emplace(gathers, std::pair(bytes, bytes)).first->second;
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  std::vector<Collective> all;
  for (const auto& [place, kinds] : sizes) {
    const plan::Span span{std::get<0>(place), std::get<1>(place), std::get<2>(place)};
    // Shard groups of the mesh include the tensor ranks.
    const bool is_of_replicas = span.axis == plan::Axis::replicate;
    const comm::Communicator& axis = is_of_replicas ? mesh.replicate_group() : mesh.shard_group();
    const int apart = is_of_replicas ? span.stride : plan.grid.stride(span);
    const int first = axis.rank() - plan.grid.coordinate(mesh.stage().rank(), span) * apart;
    const Group group(comm::Communicator::split(axis.mpi(), first, axis.rank()));
    const std::string over =
        text(span.ranks, " ranks of ", plan::name(span.axis),
             span.stride > 1 ? text(", ", span.stride, " apart") : std::string());
    for (const auto& [gathers, bytes] : kinds) {
      all.push_back({gathers, bytes.first, over, group.ranks, group.per_host});
      if (bytes.second != bytes.first)
        all.push_back({gathers, bytes.second, over, group.ranks, group.per_host});
    }
  }
  return all;
}

Check collectives(comm::Communicator& world, const std::vector<Collective>& all, double seconds,
                  const simulate::Machine* machine) {
  Check check;
  check.name = "collectives";
  check.may_vary = true;
  check.unit = "GB/s";
  Facts known;
  if (machine != nullptr)
    for (const Collective& one : all)
      known.push_back({predicted + one.name(), print("%.9g", predicted_rate(one, *machine))});
  check.measure = [&world, all, known, seconds] {
    Answer answer;
    answer.facts = known;
    world.barrier();
    for (const Collective& one : all) answer.rates[one.name()] = measured_rate(one, seconds);
    return answer;
  };
  // Names are those of the table: stages have other collectives than this rank.
  check.judge = [](const Table& table) {
    std::map<std::string, double> predictions;  // by name; 0: none
    for (const Answer& answer : table.answers)
      for (const auto& [name, measured] : answer.rates) {
        (void)measured;
        double& prediction = predictions[name];
        TextReader(answer.fact(predicted + name)) >> prediction;
      }
    Findings findings;
    for (const auto& [name, prediction] : predictions) {
      const Rate rate = {name, "GB/s", 1e-9, 0.4, network_advice};
      append(findings, judge_rate(table, "collectives", rate));
      judge_by_machine(table, "collectives", rate, prediction, findings);
    }
    return findings;
  };
  return check;
}

}  // namespace ostrakon::preflight
