// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/key_kinds.hpp>
#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/wall_time.hpp>
#include <ostrakon/watch/fault.hpp>

namespace ostrakon::config {
namespace {

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

/// The key wall_time, in the format of batch systems.
Key wall_time() {
  Key key(
      "wall_time",
      "time that the run may take, from the start of its processes: it saves a checkpoint and "
      "stops with exit status 75 before that is over. Set it some minutes below the job's limit. "
      "Written as for sbatch --time, in quotes if it has a colon; 0: no limit");
  key.expected =
      "a time as minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes "
      "or days-hours:minutes:seconds";
  key.limits = "minutes | [days-]hours:minutes:seconds";
  key.set = [](Settings& settings, const Value& value) {
    const auto minutes = value.integer(0, largest_integer);
    if (!minutes && value.kind != Value::Kind::text) return false;
    const auto seconds = parse_wall_time(minutes ? std::to_string(*minutes) : value.text);
    if (seconds) settings.runtime.wall_time = *seconds;
    return seconds.has_value();
  };
  key.get = [](const Settings& settings) {
    const double seconds = settings.runtime.wall_time;
    return seconds == 0.0 ? Value::of(0.0) : Value::of(format_wall_time(seconds));
  };
  key.is_text = true;
  return key;
}

/// The key inject: a fault on purpose.
Key inject() {
  Key key(
      "inject",
      "a fault on purpose, to see what the watchdog makes of it: \"rank R, step S, ACTION: WHAT\", "
      "with an action as messages name it, such as backward(block.1), or checkpoint, for the "
      "writing of that rank's part. WHAT: sleep SECONDS, spin, stop (SIGSTOP) or exit; of a "
      "collective also skip, or swap with the next of another stream; or \"rank R, step S: "
      "slow_data SECONDS\" or slow_compute SECONDS, from that step on. Empty: none");
  key.expected = "\"rank R, step S, ACTION: WHAT\" as text";
  key.is_text = true;
  key.set = [](Settings& settings, const Value& value) {
    if (value.kind != Value::Kind::text) return false;
    require_no_control_characters(value.text);
    if (!value.text.empty()) watch::parse_fault(value.text);
    settings.runtime.inject = value.text;
    return true;
  };
  key.get = [](const Settings& settings) { return Value::of(settings.runtime.inject); };
  return key;
}

Key paths_from() {
  return choice("paths_from", FIELD(runtime.paths_from), paths_from_names,
                "folder at which relative paths in the deck begin: the deck's own, or the one in "
                "which the program is started");
}

}  // namespace

Section checkpoint_section() {
  return {
      "checkpoint",
      "when training saves its state, from which --resume continues, and the initial weights",
      {integer(
           "every", FIELD(checkpoint.every), 0,
           "steps between checkpoints; the last step is saved, too. 0: none but those requested by "
           "a signal, a file checkpoint_now in output.directory, or runtime.wall_time"),
       integer("keep", FIELD(checkpoint.keep), 1,
               "number of checkpoints to keep: those saved last"),
       integer("keep_every", FIELD(checkpoint.keep_every), 0,
               "also keep, for good, the checkpoints of steps that are multiples of this; 0: none"),
       choice("files", FIELD(checkpoint.files), checkpoint::files_names,
              "data files of a checkpoint: one for each rank, one for each node, or a single one"),
       boolean("async", FIELD(checkpoint.asynchronous),
               "continue training while a copy of the state in host memory is written; has no "
               "effect with every: 0"),
       boolean("verify", FIELD(checkpoint.verify), "read each checkpoint back before it counts"),
       number("bandwidth", FIELD(checkpoint.bandwidth), not_negative,
              "limit of what a rank writes, in MB/s; 0: no limit"),
       path("initial_weights", FIELD(checkpoint.initial_weights), true,
            "weights to begin with: a run's folder, weights.h5 or a checkpoint, or safetensors (a "
            "file, an index or a folder) with Hugging Face's names; empty: random")}};
}

Section output_section() {
  return {"output",
          "folder and frequency of what a run writes",
          {written_path("directory", FIELD(output.directory),
                        "folder of all that the run writes; created if it does not exist"),
           integer("every", FIELD(output.every), 1, "steps between progress lines on the screen"),
           integer("digest_every", FIELD(output.digest_every), 0,
                   "steps between state digests (hashes of parameters and moments); 0: none"),
           integer("trace", FIELD(output.trace_steps), 0,
                   "number of steps in trace.json, beginning with the second; 0: no trace"),
           integer("rank_times_every", FIELD(output.rank_times_every), 0,
                   "steps between rows of metrics.jsonl that say what each rank spends the time of "
                   "a step on, and between looks for ranks that are late; 0: none: see "
                   "docs/operations.md")}};
}

Section runtime_section() {
  return {
      "runtime",
      "how the run uses this machine",
      {named_integer("threads", FIELD(runtime.threads), {{"auto", automatic_threads}}, 1, 4096,
                     "threads of a rank in matrix products; auto: as many as Kokkos has for "
                     "kernels. All ranks use the smallest number of any"),
       number("peak_gflops", FIELD(runtime.peak_gflops), not_negative,
              "peak rate of a rank, to which MFU is relative; 0: measured before step 1"),
       wall_time(),
       choice("streams", FIELD(runtime.streams), streams_choice_names,
              "inline: all actions in plan order on one thread; threads: gathers and "
              "reductions on threads of their own, overlapped with compute; auto: threads, "
              "if each rank has two cores more than it computes on and MPI gives "
              "MPI_THREAD_MULTIPLE, else inline. On a device, auto: each a stream of the device; "
              "inline: one after the other, for debugging"),
       choice("transport", FIELD(runtime.transport), transport_choice_names,
              "what moves device memory between ranks. nccl: NCCL or RCCL; mpi_direct: MPI, "
              "which reads device memory; mpi_staged: MPI, through pinned host memory; auto: "
              "the first of these that this build has, that MPI says it can, and that ranks "
              "with a device each allow. Only on devices"),
       choice(
           "graphs", FIELD(runtime.graphs), graphs_choice_names,
           "whether the device is given the work of an action that is the same in each step as "
           "one graph, not kernel by kernel, which takes the host longer. auto: actions of three "
           "kernels or more, but those of experts, with streams: auto; never: none, for "
           "debugging. Changes no bit. Only on devices"),
       number("collective_timeout", FIELD(runtime.collective_timeout), positive,
              "seconds that a collective of NCCL, or the start of NCCL, may take before the "
              "job ends with its name"),
       choice("communicators", FIELD(runtime.communicators), communicators_choice_names,
              "communicators of NCCL that a group of ranks has. per_stream: one for each stream "
              "that communicates, so that gathers and reductions overlap; single: one, in which "
              "one collective follows the other in plan order, for systems where several hang. "
              "Only with transport nccl"),
       choice(
           "attention", FIELD(runtime.attention), attention_choice_names,
           "who computes attention on NVIDIA devices in bf16 and fp16. own: own kernels; cudnn: "
           "cuDNN, refused where it can't; auto: cuDNN where it is faster, has been built in and "
           "passes trials at start, else own kernels. Decides bits"),
       choice(
           "subnormals", FIELD(runtime.subnormals), subnormals_names,
           "what kernels do with subnormal numbers, those below the smallest normal one. flush: "
           "take them and give them as 0; keep: compute with them, which is many times slower on "
           "some processors. Decides bits. On devices: keep"),
       boolean("preflight", FIELD(runtime.preflight),
               "check ranks, links and hosts before step 1, in less than a minute, and refuse the "
               "run where there is a fault: see docs/operations.md"),
       integer("audit", FIELD(runtime.audit), 0,
               "steps between audits, in which each rank computes a leaf of another rank again "
               "before the update, and all compare digests of gradients and gathered parameters: "
               "see docs/operations.md. 0: none"),
       named_integer("watchdog", FIELD(runtime.watchdog),
                     {{"auto", automatic_watchdog}, {"off", no_watchdog}}, 1,
                     std::int64_t{7} * 86400,
                     "when a run that hangs is ended, with status 76 and a line that says which "
                     "rank is at fault. auto: limits follow from the times that actions took: see "
                     "docs/operations.md; a number: seconds that anything may take; off: never"),
       inject(), paths_from()}};
}

#undef FIELD

}  // namespace ostrakon::config
