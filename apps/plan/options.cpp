// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <ostrakon/base/error.hpp>

namespace ostrakon::apps::plan_program {
namespace {

constexpr const char* about =
    R"(Shows what a training step of DECK needs of each rank: the strategy and whether its sums are
bitwise equal to 1 rank; memory by category and by unit at the peak; collectives and messages, their
number and sizes, and what is sent inside a node and across nodes; what is copied between host and
device memory; how much of it the plan lets overlap with computing; an estimate of the step's time,
tokens/s and MFU; actions and floating-point operations. Memory, traffic and operations are exact.
Starts no ranks, opens no data and takes none of the memory that it plans, so any number of ranks
can be planned anywhere.)";

constexpr const char* after =
    R"(The estimate simulates the plan: each action begins when its stream is free and all that it waits
for has ended, and takes its floating-point operations, or the bytes that it sends, copies or
processes on the host, over these rates. So it assumes that streams run concurrently, as with
runtime.streams: threads; inline, communication adds to the time. Concurrent collectives share a
link. All else takes no time, nor do latencies. MFU counts a step as three forwards, without
recomputation, relative to --gflops. --json has the estimate if one of the rates is given.

--choose varies
    parallel.sharding, shard_group, pipeline, schedule, pipeline_chunks, tensor, context, expert,
    accumulation, reshard_after_forward, hierarchical_collectives, forward_prefetch,
    backward_prefetch, in_flight_reductions, memory.activation_checkpointing;
    tensor, context and training.micro_batch_size only where that changes no bit
    (model.tensor_grain, training.context_grain, training.leaf);
    memory.offload and memory.activations only if nothing fits otherwise, on devices.
Keys that --set gives are kept, and so are those of a deck with parallel.choose. All that is shown
is of complete plans. docs/choosing.md.

Exit status: 0 done, 1 bad input or failure, also where nothing fits.)";

constexpr const char* rates[] = {"--gflops", "--gigabytes-per-second",
                                 "--copy-gigabytes-per-second", "--host-gigabytes-per-second"};

/// Takes "ranks=8,64,512".
Value swept_ranks(std::vector<int>& to) {
  return {[&to](const std::string& value) -> std::string {
    const std::string key = "ranks=";
    const std::string expected = "ranks=, then integers >= 1, such as ranks=8,64";
    if (value.rfind(key, 0) != 0) return expected;
    to.clear();
    for (std::size_t begin = key.size(); begin <= value.size();) {
      const std::size_t end = std::min(value.find(',', begin), value.size());
      if (!integer(to.emplace_back(), 1).take(value.substr(begin, end - begin)).empty())
        return expected;
      begin = end + 1;
    }
    return "";
  }};
}

Value refuse_fit() {
  return {[](const std::string& value) -> std::string {
    throw Error(
        text("--fit is --choose now: write --choose --memory ", value,
             ", with --time MACHINE.yaml for a described machine; see ostrakon-plan --help"));
  }};
}

void complete(Line& line, const Given& given) {
  line.deck = given.operands[0];
  for (const auto& [option, value] : given.options)
    if (!value.empty() && option != "--set" && option != "--memory" && option != "--host-bytes" &&
        option != "--output")
      line.place.insert(line.place.end(), {option, value});
  line.has_rates = std::any_of(std::begin(rates), std::end(rates),
                               [&](const char* rate) { return given.has(rate); });
  require(line.trace.empty() || given.has("--svg") || given.has("--html"),
          "--trace goes with --svg or --html only");
}

}  // namespace

plan::Rates Line::rates() const {
  return {1e9 * gflops, 1e10 * gigabytes_per_second, 1e9 * gigabytes_per_second,
          1e9 * copy_gigabytes_per_second, 1e9 * host_gigabytes_per_second};
}

Program program_of(Line& line, const std::function<void(const Line&)>& run) {
  Command command{
      "",
      "DECK",
      about,
      {{"--ranks", "N", integer(line.ranks, 1), "ranks to plan for (1)"},
       {"--ranks-per-node", "N", integer(line.ranks_per_node, 1),
        "consecutive ranks of a node; default: parallel.ranks_per_node of the deck; where it is 0 "
        "as many as the machine of --time has, or all ranks"},
       {"--device", "cpu|nvidia|gpu", choice(line.device, math::kernel_form_names),
        "what ranks compute on: CPUs; NVIDIA's GPUs from sm_80 on; others, where attention goes "
        "through matrix products. They need workspaces of different sizes. Default: what this "
        "build computes on; with --time what its file says"},
       set_option(line.overrides),
       {"--json", "", flag(line.json),
        "write the whole plan as JSON instead: every buffer with its offset in memory, every "
        "action with what it uses and waits for; also what --kernels, --why, --time and --choose "
        "show"},
       {"--kernels", "", flag(line.kernels),
        "show, instead, what a step launches on a device: for each kind of unit the calls of "
        "forward and backward, their kernels, operations, and the bytes that they move beside "
        "the least that they can; and how often each kernel is launched. A build without a "
        "device takes --device nvidia"},
       {"--why", "BUFFER", word(line.why),
        "show, instead, what keeps buffers in memory: those with this in their names, such as "
        "\"block.3 saved\", or with peak all that are live when memory is fullest; from which "
        "action to which they live, what needs them at the peak, which settings change that"},
       {"--svg", "FILE", output(line.svg),
        "draw the plan too: streams, actions and their waits, memory over the step; of a pipeline "
        "also what each stage computes when, and its waits; with --time true in time; with --sweep "
        "the efficiency. Writes FILE.json, which the Python package ostrakon_report draws"},
       heading("How long a step takes on a machine:"),
       {"--time", "MACHINE.yaml", word(line.machine),
        "show, instead, how long a step takes on the machine that a file describes, such as "
        "machines/h100-infiniband.yaml: with a range, what each stream does, where the time goes, "
        "what would help"},
       {"--stack", "STACK.yaml", with("--time", word(line.stack)),
        "the software whose step that is, such as machines/stacks/megatron-core.yaml; default: "
        "Ostrakon, or the stack that the machine's file has"},
       {"--brief", "", with("--time", flag(line.brief)),
        "show only the step's time, its range, tokens/s, MFU and, with --json, factors: without "
        "what each action does when, the chain that decides the time, and what would help"},
       {"--sweep", "ranks=8,64,512", with("--time", swept_ranks(line.sweep)),
        "on each of these numbers of ranks"},
       {"--scaling", "strong|weak", with("--sweep", choice(line.scaling, scaling::scaling_names)),
        "weak: the global batch grows with the ranks, from the deck's on the fewest (default); "
        "strong: it stays"},
       {"--csv", "", with("--sweep", flag(line.csv)), "as CSV"},
       {"--html", "FILE", with("--time", output(line.html)),
        "what --time shows and --svg draws, as a page"},
       {"--trace", "FILE", with("--time", word(line.trace)),
        "with --svg or --html: the trace.json of a run, drawn beside"},
       heading("The fastest settings:"),
       {"--choose", "", flag(line.chooses),
        "show, instead, the settings with which a step is fastest on the machine of --time, or at "
        "the rates below, and how much faster than the deck as it stands; commands with them; the "
        "next of other kinds. No bit of results is changed by them"},
       {"--memory", "BYTES", with("--choose", bytes(line.room.device)),
        "most that the arena of a rank may take, for training, validation and writing weights, "
        "such as 72GiB; default: the machine's memory but for a sixteenth, if its file says how "
        "much it has"},
       {"--host-bytes", "BYTES", with("--choose", bytes(line.room.host)),
        "most that its arena in host memory may take; default: any"},
       {"--any-precision", "", with("--choose", flag(line.any_precision)),
        "other precision.gather and precision.reduce, and any training.micro_batch_size, too: bits "
        "of results change"},
       {"--output", "FILE", with("--choose", output(line.output)),
        "write the deck with these settings, too"},
       {"--exhaustive", "", with("--choose", flag(line.exhaustive)),
        "plan all settings instead of searching. It takes long"},
       {"--fit", "BYTES", refuse_fit(), ""},
       heading("Rates for the estimate of time; the defaults are about a GPU's. For CPU cores give "
               "the rate of the matrix product that ostrakon-bench kernels prints:"),
       {rates[0], "N", above_zero(line.gflops),
        "rate at which a rank computes, in GFLOP/s (100000)"},
       {rates[1], "N", above_zero(line.gigabytes_per_second),
        "rate at which a rank sends across nodes, in 10^9 bytes/s (25); inside a node it is ten "
        "times that"},
       {rates[2], "N", above_zero(line.copy_gigabytes_per_second),
        "rate at which a rank copies between host and device, each way (25)"},
       {rates[3], "N", above_zero(line.host_gigabytes_per_second),
        "rate at which the host sums and updates arrays, each counted once (12, about what one "
        "thread does)"}},
      [&line, run](const Given& given) {
        complete(line, given);
        run(line);
        return 0;
      },
      {{"--ranks", "--sweep"},
       {"--why", "--time"},
       {"--why", "--choose"},
       {"--why", "--svg"},
       {"--why", "--kernels"},
       {"--kernels", "--time"},
       {"--kernels", "--choose"},
       {"--kernels", "--svg"},
       {"--time", "--device"},
       {"--html", "--sweep"},
       {"--trace", "--sweep"},
       {"--brief", "--sweep"},
       {"--brief", "--svg"},
       {"--brief", "--html"},
       {"--brief", "--choose"},
       {"--choose", "--sweep"},
       {"--choose", "--svg"},
       {"--choose", "--html"},
       {"--csv", "--json"}}};
  for (const char* const rate : rates) command.exclusive.emplace_back("--time", rate);
  return {"ostrakon-plan", "", {command}, {}, after};
}

}  // namespace ostrakon::apps::plan_program
