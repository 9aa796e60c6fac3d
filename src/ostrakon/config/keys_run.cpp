// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/key_kinds.hpp>
#include <ostrakon/config/key_sections.hpp>
#include <ostrakon/config/wall_time.hpp>

namespace ostrakon::config {
namespace {

#define FIELD(member) \
  [](auto& settings) -> auto& { return settings.member; }

/// As batch systems write it.
Key wall_time() {
  Key key;
  key.name = "wall_time";
  key.meaning =
      "time after its start at which the job ends: a checkpoint is saved just before, and the exit "
      "status is 75. As sbatch --time takes it, in quotes where it has a colon; 0: no limit";
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

Key paths_from() {
  return choice(
      "paths_from", FIELD(runtime.paths_from), paths_from_names,
      "which folder relative paths in the deck begin at: the deck's own, or the one in which the "
      "program is started");
}

}  // namespace

Section checkpoint_section() {
  return {"checkpoint",
          "where training begins, and when it saves its state, from which it can be resumed",
          {integer("every", FIELD(checkpoint.every), 0,
                   "steps between checkpoints; 0: only when a signal or runtime.wall_time asks"),
           integer("keep", FIELD(checkpoint.keep), 1, "checkpoints to keep, of those saved last"),
           integer("keep_every", FIELD(checkpoint.keep_every), 0,
                   "keep for good those of steps that this divides; 0: none"),
           choice("files", FIELD(checkpoint.files), checkpoint::files_names, "one for each"),
           boolean("async", FIELD(checkpoint.asynchronous),
                   "continue training while a copy of the state in host memory is written; needs "
                   "`every`"),
           boolean("verify", FIELD(checkpoint.verify), "read back what was written"),
           number("bandwidth", FIELD(checkpoint.bandwidth), not_negative,
                  "MB/s that a rank writes at most; 0: no limit"),
           path("initial_weights", FIELD(checkpoint.initial_weights), true,
                "weights.h5 or a checkpoint of a run, or safetensors (a file, an index or a folder "
                "with them) in Hugging Face's naming; empty: random")}};
}

Section output_section() {
  return {"output",
          "what is written where",
          {path("directory", FIELD(output.directory), false, "made if it is not there"),
           integer("every", FIELD(output.every), 1, "steps between progress lines"),
           integer("digest_every", FIELD(output.digest_every), 0,
                   "steps between state digests; 0: never"),
           integer("trace", FIELD(output.trace_steps), 0, "steps in trace.json, from the second")}};
}

Section runtime_section() {
  return {
      "runtime",
      "this machine",
      {named_integer("threads", FIELD(runtime.threads), {{"auto", automatic_threads}}, 1, 4096,
                     "of a rank in the matrix library; auto: as many as Kokkos runs kernels "
                     "on, the least over ranks"),
       number("peak_gflops", FIELD(runtime.peak_gflops), not_negative,
              "peak rate of a rank, which MFU is a share of; 0: measured"),
       wall_time(),
       choice(
           "streams", FIELD(runtime.streams), streams_choice_names,
           "threads: communication overlapped with compute; inline: in plan order on one thread"),
       paths_from()}};
}

#undef FIELD

}  // namespace ostrakon::config
