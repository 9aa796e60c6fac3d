// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/file_type.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/folder_lock.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/free_name.hpp>
#include <ostrakon/base/input.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface_config.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/timing.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/host_threads.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/mesh/named_agree.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostrakon/plan/report_json.hpp>
#include <ostrakon/plan/report_text.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/runtime/overlap.hpp>
#include <ostrakon/runtime/trace.hpp>
#include <ostrakon/train/continuation.hpp>
#include <ostrakon/train/kernel_facts.hpp>
#include <ostrakon/train/make_trainer.hpp>
#include <ostrakon/train/metrics.hpp>
#include <ostrakon/train/peak_rate.hpp>
#include <ostrakon/train/resume_search.hpp>
#include <ostrakon/train/run.hpp>
#include <ostrakon/train/saver.hpp>
#include <ostrakon/train/step_size.hpp>
#include <ostrakon/train/threads.hpp>
#include <ostrakon/train/trace_file.hpp>
#include <ostrakon/train/triggers.hpp>
#include <sstream>
#include <type_traits>

namespace ostrakon::train {
namespace {

namespace fs = std::filesystem;
using plan::Purpose;

/// A run from its start to its end; a phase of it is a method.
class Run {
 public:
  Run(const config::Settings& settings, MPI_Comm parent, const RunOptions& options)
      : settings_(config::with_absolute_paths(settings)),
        options_(options),
        mesh_(make_mesh(settings, parent, options)),
        world_(mesh_.world()),
        matrix_threads_(set_matrix_threads(settings, world_)),
        talks_(world_.rank() == 0),
        trainer_(make_trainer(settings, mesh_)),
        triggers_(talks_ ? (directory() / "checkpoint_now").string() : ""),
        saver_(settings_, mesh_, trainer_) {}

  RunEnd all() {
    show();
    trainer_.require_same_plan();
    if (!options_.dry_run) trainer_.require_memory();
    open_data();
    if (!options_.dry_run) about_path("output.directory", [this] { lock_folder(false); });
    find_checkpoints();
    if (candidates_.empty()) about_path("checkpoint.initial_weights", [this] { open_weights(); });
    if (options_.dry_run) {
      say("dry run: nothing was allocated\n");
      return RunEnd::done;
    }
    if (stops_before_first_step()) return RunEnd::stopped;
    about_path("output.directory", [this] { make_folder(); });
    start();
    about_path("output.directory", [this] { open_output(); });
    if (stops_before_first_step()) return RunEnd::stopped;
    try {
      train();
    } catch (const AgreedError&) {
      end_progress_line();
      keep_what_was_learned();
      throw;
    }
    if (!stops_) about_path("output.directory", [this] { save_weights(); });
    summarize();
    require_saved();
    return stops_ ? RunEnd::stopped : RunEnd::done;
  }

 private:
  static mesh::Mesh make_mesh(const config::Settings& settings, MPI_Comm parent,
                              const RunOptions& options) {
    comm::Communicator world = comm::Communicator::duplicate(parent);
    comm::require_agreement(world, "ranks have different settings", config::facts_of(settings));
    world.agree([&] { config::check_ranks(settings, world.size()); });
    mesh::Mesh mesh(parent, static_cast<int>(settings.ranks_per_node), settings.shard_group);
    if (!options.dry_run) world.agree([&] { require_possible_step(settings, mesh); });
    return mesh;
  }

  void say(const std::string& words) const {
    if (talks_) std::cout << printable_lines(words) << std::flush;
  }

  /// Lets errors of `work`, which is about files below a path of the deck, say how it was given.
  template <class Work>
  std::invoke_result_t<const Work&> about_path(const std::string& key, const Work& work) const {
    try {
      return work();
    } catch (const AgreedError& error) {
      throw AgreedError(text(config::path_origin(settings_, key), ": ", error.what()));
    }
  }

  // ---- before step 1

  void show() {
    const std::string ranks = mesh_.table();
    const runtime::Program& program = trainer_.program(Purpose::train);
    const plan::StepPlan& plan = program.plan;
    std::int64_t padded = 0;
    for (const plan::FlatParameter& flat : plan.flats) padded += flat.padded;
    const std::int64_t frozen = plan.frozen_count;
    const std::string unlike_kernels =
        comm::disagreement(world_, kernel_facts(settings_, matrix_threads_));
    std::ostringstream out;
    out << "Ostrakon " << version() << ", Kokkos " << KOKKOS_VERSION / 10000 << "."
        << KOKKOS_VERSION / 100 % 100 << "." << KOKKOS_VERSION % 100 << " " << Exec::name()
        << ", matrix products by " << math::gemm_library() << "\n\n"
        << ranks << "\n"
        << "settings\n"
        << config::summary(settings_, on_ranks()) << "\n"
        << "model\n"
        << "  parameters             " << format_count(trainer_.model().parameter_count())
        << (frozen > 0 ? " (" + format_count(frozen) + " frozen)" : "") << " in "
        << trainer_.model().units() << " units, "
        << format_count(padded - trainer_.model().parameter_count()) << " elements of padding\n"
        << "  leaves                 " << settings_.training.leaves() << " of "
        << settings_.training.micro_batch_size << " x " << settings_.training.sequence_length
        << " tokens, " << plan.grid.micro_batches() << " on each rank\n\n"
        << "plan of a step, each rank (" << plan.actions.size() << " actions, hash "
        << format_hex(plan.hash()) << ")\n"
        << plan::memory_table(plan, program.memory) << host_memory(program)
        << "  sent to other ranks    " << format_bytes(plan.bytes_sent()) << "\n"
        << (plan.grid.has_levels()
                ? text("  collectives            ",
                       plan::collectives_text(plan.grid, mesh_.ranks_per_node()), "\n")
                : "")
        << "  compute                " << plan::format_flops(plan.flops()) << "\n"
        << "  streams                "
        << (trainer_.streams() == runtime::Streams::threads ? "on threads of their own"
                                                            : "in turn, on one thread")
        << "\n"
        << threads_line(host_threads(), matrix_threads_, mesh_.cores())
        << (plan::updates_early(plan) ? text("  updates                ", plan::early_updates, "\n")
                                      : "")
        << "  available memory       " << available_memory() << " for " << mesh_.host().size()
        << (mesh_.host().size() == 1 ? " rank" : " ranks") << " on this host\n"
        << "  sums over leaves       "
        << (!plan.has_the_bits_of_one_rank() || !unlike_kernels.empty()
                ? "those of one rank but for rounding"
                : "bit for bit those of one rank" + with_threads())
        << (unlike_kernels.empty() ? "" : ", as ranks compute unlike:\n      " + unlike_kernels)
        << "\n"
        << order_of_sums(plan) << "\n";
    say(out.str());
  }

  config::OnRanks on_ranks() const {
    const plan::Grid& grid = trainer_.program(Purpose::train).plan.grid;
    return {grid.shard(), plan::may_have_levels(grid, mesh_.ranks_per_node())};
  }

  /// What the bits of matrix products may depend on. Of a device's library nothing is said.
  std::string with_threads() const {
    if (on_device) return "";
    return text(" with ", matrix_threads_, matrix_threads_ == 1 ? " thread" : " threads",
                " for matrix products");
  }

  /// With a grain, and why it makes sums differ from one rank's, if it does.
  static std::string order_of_sums(const plan::StepPlan& plan) {
    const std::int64_t grain = plan.layouts.sum_grain;
    if (grain == 0) return "";
    const std::string why = plan::why_grain_differs(plan.grid, plan.layouts.accumulation, grain);
    return (why.empty() ? "" : "      " + why + "\n") + "  order of sums          " +
           plan::describe_grain(grain) + "\n";
  }

  static std::string available_memory() {
    const std::string on_host = format_bytes(runtime::available_memory_bytes(plan::Space::host));
    if (!on_device) return on_host;
    return format_bytes(runtime::available_memory_bytes(plan::Space::device)) + " on the device, " +
           on_host + " on the host";
  }

  /// What is planned there where more than batches pass through it, or stay.
  static std::string host_memory(const runtime::Program& program) {
    const std::int64_t up = plan::copied_bytes(program.plan, plan::Kind::copy_to_device);
    const std::int64_t down = plan::copied_bytes(program.plan, plan::Kind::copy_to_host);
    if (up + down == 0 && program.plan.checkpoint < 0) return "";
    return "  in host memory\n" + plan::memory_table(program.plan, program.host_memory) +
           (up + down == 0 ? ""
                           : "  copied                 " + format_bytes(up) + " to the device, " +
                                 format_bytes(down) + " to the host\n");
  }

  void open_data() {
    const config::TrainingSettings& training = settings_.training;
    data::DataSettings data = settings_.data;
    if (options_.dry_run) data.verify = false;
    const auto open = [&](data::Split split) {
      return data::open_dataset(data, split, training.sequence_length, settings_.model.vocabulary,
                                training.seed, world_);
    };
    training_data_ = about_path("data.path", [&] { return open(data::Split::training); });
    if (training.validate_every > 0)
      validation_data_ =
          about_path("data.validation_path", [&] { return open(data::Split::validation); });
    std::vector<std::string> notes;
    if (validation_data_)
      about_path("data.validation_path", [&] {
        world_.agree([&] {
          notes = require_comparable_validation(training_data_->identity(), data.path,
                                                validation_data_->identity(), options_.allowed);
        });
      });
    saver_.describe_data(training_data_->identity());
    std::ostringstream out;
    out << "data\n  training               "
        << format_count(static_cast<std::int64_t>(training_data_->samples())) << " samples of "
        << training.sequence_length << " tokens\n";
    if (validation_data_) {
      const std::uint64_t whole =
          validation_data_->samples() / static_cast<std::uint64_t>(training.global_batch_size);
      validation_batches_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(whole), 1,
                                                     training.validation_batches);
      const std::int64_t used = validation_batches_ * training.global_batch_size;
      const auto samples = static_cast<std::int64_t>(validation_data_->samples());
      out << "  validation             " << used << " of " << format_count(samples)
          << " samples every " << training.validate_every << " steps\n";
      if (used > samples)
        out << "                         fewer than a global batch: some count more than once\n";
      out << shown_notes(notes);
    }
    if (const auto entropy = training_data_->entropy())
      out << "  entropy                " << *entropy << " nats per token\n";
    out << "\n";
    say(out.str());
  }

  /// Each rank opens them for itself; one looks whether they are whole.
  void open_weights() {
    const std::string& path = settings_.checkpoint.initial_weights;
    if (path.empty()) return;
    world_.agree([&] {
      weights_ =
          checkpoint::open_parameters(path, settings_.model, settings_.training.sequence_length);
      config::require_same_model(settings_, weights_->deck(), path);
      if (talks_ && !options_.dry_run && !weights_->checks_what_it_reads()) weights_->verify();
    });
    huggingface_config_ = weights_->huggingface_config();
    std::vector<std::string> notes;
    world_.agree([&] {
      notes = require_same_tokenizer(weights_->tokenizer(), path, training_data_->tokenizer(),
                                     options_.allowed);
    });
    if (!weights_->unchecked().empty()) notes.push_back(weights_->unchecked());
    say(text("weights\n  begin as in            ", path, "\n", shown_notes(notes), "\n"));
  }

  static std::string shown_notes(const std::vector<std::string>& notes) {
    std::string lines;
    for (const std::string& note : notes) lines += "  note                   " + note + "\n";
    return lines;
  }

  /// From before anything in it is changed. `made`: the folder is there by now.
  void lock_folder(bool made) {
    world_.agree([&] {
      if (!talks_ || lock_ || (!made && !is_folder(directory().string()))) return;
      FolderLockOptions options;
      options.take_from_holder = options_.break_lock;
      options.advice = "; end it, choose another output.directory, or take it with --break-lock";
      options.tell = [this](const std::string& words) { say("  (" + words + ")\n"); };
      lock_ = std::make_unique<FolderLock>(settings_.output.directory, options);
      saver_.guard([this] { lock_->require_held(); });
    });
  }

  /// Nothing that is there is touched before the state is loaded.
  void make_folder() {
    world_.agree([&] {
      if (!talks_) return;
      std::error_code error;
      fs::create_directories(directory(), error);
      require(!error, settings_.output.directory, " can't be made: ", error.message());
      for (const char* file : {"deck.yaml", "plan.json", "metrics.jsonl", "trace.json"})
        require_no_pipe((directory() / file).string());
      const fs::path weights = directory() / "weights.h5";
      require(!is_folder(weights.string()), weights.string(),
              " is a folder; weights go to a file of that name");
    });
    const bool was_locked = lock_ != nullptr;
    lock_folder(true);
    world_.agree([&] {
      if (!talks_ || was_locked || options_.resume != Resume::automatic) return;
      require(saver_.folder().names().empty(), "another run has saved into ", checkpoints(),
              " since this one looked for checkpoints: start this one again");
    });
  }

  void open_output() {
    world_.agree([&] {
      if (!talks_) return;
      tidy_checkpoints();
      const std::string metrics = (directory() / "metrics.jsonl").string();
      const std::string earlier = origin_is_own_ ? "" : set_metrics_aside(metrics);
      if (!earlier.empty()) say(text("metrics of an earlier run are in ", earlier, " now\n\n"));
      metrics_ = std::make_unique<MetricsFile>(metrics, steps_done_);
      replace_file((directory() / "deck.yaml").string(),
                   config::write_deck(config::with_absolute_paths(settings_)));
      write_plan(directory() / "plan.json");
      // One that is there is another run's.
      const fs::path trace = directory() / "trace.json";
      std::error_code error;
      fs::remove(trace, error);
      require(!error, trace.string(), " of an earlier run can't be removed: ", error.message());
      if (settings_.output.trace_steps > 0) trace_.emplace(trace.string());
      keep_earlier(directory() / "weights.h5");
    });
    first_step_ = steps_done_ + 1;
  }

  std::string checkpoints() const { return (directory() / "checkpoints").string(); }

  /// Whether a checkpoint is one of this run's folder.
  bool is_own(const std::string& path) const {
    if (!is_folder(checkpoints())) return false;
    std::error_code problem;
    // Where its name stands: the checkpoint itself may be a link to an archive. But `latest` is one
    // to another name.
    const fs::path name = fs::path(path).lexically_normal();
    const fs::path real = name.filename() == "latest" ? fs::canonical(name, problem) : name;
    require(!problem, "can't look at '", path, "': ", problem.message());
    return are_same(parent_folder(real.string()), checkpoints());
  }

  /// Another run's are not to be taken for those of this one, nor damaged ones for good ones.
  void tidy_checkpoints() const {
    const checkpoint::Folder& folder = saver_.folder();
    try {
      for (const std::string& path : damaged_)
        if (is_own(path)) say(text("renamed to ", folder.set_damaged_aside(path), "\n"));
    } catch (const Error& error) {
      say(text(error.what(), "\n"));
    }
    for (const std::string& path : folder.remove_partial()) say(text("renamed to ", path, "\n"));
    if (options_.resume == Resume::none) {
      const std::string aside = folder.set_aside();
      if (!aside.empty()) say(text("checkpoints of an earlier run are in ", aside, " now\n\n"));
      return;
    }
    try {
      // Which may not have been pointed to when the last run was interrupted.
      if (origin_is_own_ && origin_is_newest_) folder.mark_latest(steps_done_);
    } catch (const Error& error) {
      say(text(error.what(), "\n"));
    }
  }

  /// Weights of another run are not to be taken for those of this one, which may end without any;
  /// but they may be all that is left of days.
  void keep_earlier(const fs::path& weights) const {
    if (!is_there(weights.string())) return;
    const std::string kept = free_name((directory() / "weights.previous").string(), ".h5");
    rename_file(weights.string(), kept);
    say(text("weights of an earlier run are in ", kept, " now\n\n"));
  }

  void write_plan(const fs::path& path) {
    const runtime::Program& program = trainer_.program(Purpose::train);
    plan::Report report =
        plan::make_report(program.plan, program.memory, program.host_memory, mesh_.node().size());
    report.strategy = config::strategy(settings_, program.plan.layouts.accumulation, on_ranks());
    std::ostringstream stream;
    plan::write_report_json(stream, program.plan, program.memory, program.host_memory, report);
    replace_file(path.string(), stream.str());
  }

  void start() {
    trainer_.allocate();
    const double given = settings_.runtime.peak_gflops * 1e9;
    peak_.emplace(given > 0.0
                      ? PeakRate(given, PeakRate::Origin::given)
                      : PeakRate(trainer_.measure_peak_flops(), PeakRate::Origin::measured));
    begin_state();
    trainer_.observe([this](plan::Kind kind, bool begins) {
      if (begins)
        timers_.start(plan::name(kind));
      else
        timers_.stop(plan::name(kind));
    });
  }

  // ---- where to begin

  /// Rank 0 looks for them; what they say of themselves is checked when they are opened.
  void find_checkpoints() {
    if (options_.resume == Resume::none) return;
    std::optional<std::string> asked;
    if (options_.resume == Resume::path) asked = options_.checkpoint;
    const FoundCheckpoints found = find_resumable(mesh_, saver_.folder(), asked);
    for (const std::string& problem : found.problems) say(text("damaged: ", problem, "\n"));
    candidates_ = found.sound;
    damaged_ = found.damaged;
    origin_is_newest_ = found.in_folder;
    if (candidates_.empty() && !damaged_.empty()) nothing_good();
    if (candidates_.empty()) say("checkpoint\n  none yet: begins at step 1\n\n");
    if (options_.dry_run && !candidates_.empty())
      say(text("checkpoint\n  newest                 ", candidates_.front(), "\n\n"));
  }

  [[noreturn]] void nothing_good() const {
    throw AgreedError(text("no checkpoint in ",
                           options_.resume == Resume::path ? options_.checkpoint : checkpoints(),
                           " can be used; --resume none begins at step 1, and sets them aside"));
  }

  void begin_state() {
    const config::ScopedTimer timer(timers_, "initialize");
    if (candidates_.empty()) {
      trainer_.initialize(weights_.get());
      weights_.reset();
      return;
    }
    for (const std::string& candidate : candidates_)
      if (goes_on_from(candidate)) return;
    nothing_good();
  }

  /// False where it is damaged, and another one may do.
  bool goes_on_from(const std::string& path) {
    std::unique_ptr<checkpoint::CheckpointReader> reader;
    if (!is_sound(path, [&] { reader = open_checkpoint(path); })) return false;
    const checkpoint::Manifest& manifest = reader->manifest();
    std::vector<std::string> notes;
    world_.agree([&] {
      try {
        trainer_.require_fit(manifest);
        require_source(manifest.huggingface_config);
        notes = require_continuation(settings_, training_data_->identity(), manifest, path,
                                     options_.allowed);
      } catch (const Error& error) {
        throw Error(text("checkpoint ", path, " does not fit the deck: ", error.what()));
      }
    });
    if (!is_sound(path, [&] { trainer_.restore(*reader); })) return false;
    steps_done_ = manifest.progress.step;
    huggingface_config_ = manifest.huggingface_config;
    // Rank 0 decides: on other hosts the output folder may not be visible.
    bool is_saved = false;
    mesh::agree_by_name(world_, [&] {
      if (!talks_) return;
      origin_is_own_ = is_own(path);
      is_saved = origin_is_own_ && saver_.note_sound(path);
    });
    world_.broadcast(&origin_is_own_, sizeof origin_is_own_, 0);
    world_.broadcast(&is_saved, sizeof is_saved, 0);
    if (is_saved) saved_step_ = steps_done_;
    skipped_in_a_row_ = static_cast<int>(manifest.progress.skipped_in_a_row);
    tell_origin(path, manifest, notes);
    return true;
  }

  /// The model that a run began with is the one that it goes on with.
  void require_source(const std::string& huggingface_config) const {
    if (huggingface_config.empty()) return;
    checkpoint::require_same_model(
        checkpoint::parse_huggingface_config(huggingface_config, "config.json kept in it"),
        settings_.model, settings_.training.sequence_length);
  }

  /// Whether `work` finds no damage, where there may be other checkpoints to try. What can't be
  /// read just now may be good: then a run had better not go back to an older one.
  template <class Work>
  bool is_sound(const std::string& path, const Work& work) {
    try {
      work();
    } catch (const AgreedDamage& error) {
      if (options_.resume == Resume::path && candidates_.size() == 1) throw;
      say(text("damaged: ", error.what(), "\n"));
      damaged_.push_back(path);
      return false;
    }
    return true;
  }

  /// Its manifest is read once; every rank looks at some of its files.
  std::unique_ptr<checkpoint::CheckpointReader> open_checkpoint(const std::string& path) {
    std::string manifest;
    mesh::agree_by_name(world_, [&] {
      if (talks_) manifest = checkpoint::load_manifest(path);
    });
    manifest = world_.broadcast(manifest, 0);
    std::unique_ptr<checkpoint::CheckpointReader> reader;
    mesh::agree_by_name(world_, [&] {
      reader = std::make_unique<checkpoint::CheckpointReader>(path, manifest);
      const auto files = static_cast<int>(reader->manifest().files.size());
      for (int file = world_.rank(); file < files; file += world_.size())
        reader->verify_structure(file);
    });
    return reader;
  }

  void tell_origin(const std::string& path, const checkpoint::Manifest& manifest,
                   const std::vector<std::string>& notes) {
    std::string words =
        text("checkpoint\n  goes on from           ", path, ", step ", manifest.progress.step,
             " of ", settings_.training.steps, ", saved by ", manifest.ranks,
             manifest.ranks == 1 ? " rank" : " ranks", "\n", shown_notes(notes));
    if (talks_) {
      const char* title = "  the deck says now      ";
      for (const std::string& one : changes_since(manifest, path)) {
        words += title + one + "\n";
        title = "                         ";
      }
    }
    say(words + "\n");
  }

  std::vector<std::string> changes_since(const checkpoint::Manifest& manifest,
                                         const std::string& path) const {
    try {
      return config::differences(settings_, config::read_settings(manifest.deck, path, {}));
    } catch (const Error&) {
      return {"(the checkpoint's deck is of another version)"};
    }
  }

  // ---- training

  void train() {
    const config::TrainingSettings& training = settings_.training;
    say("training\n");
    if (steps_done_ == training.steps)
      say(text("  all ", training.steps, " steps of training.steps are done already\n"));
    if (settings_.checkpoint.every > 0 || settings_.runtime.wall_time > 0.0) saver_.prepare();
    world_.barrier();
    trace_origin_ = seconds_now();
    const Stopwatch since_start;
    std::int64_t allocations_before = runtime::memory_count().allocations;
    bool last = false;
    for (std::int64_t step = steps_done_ + 1; step <= training.steps && !last; ++step) {
      const Stopwatch clock;
      StepResult result;
      {
        const config::ScopedTimer timer(timers_, "step");
        result = trainer_.step(*training_data_, step);
      }
      steps_done_ = step;
      const std::int64_t allocations_now = runtime::memory_count().allocations;
      report(step, result, clock.seconds(), allocations_now - allocations_before);
      allocations_before = allocations_now;
      count_overlap();
      trace(step);
      const Orders orders = take_orders(since_start.seconds());
      last = step == training.steps || orders.out_of_time || orders.stop;
      stops_ = orders.stop && step < training.steps;
      if (validation_data_ && (step % training.validate_every == 0 || (last && !stops_)))
        validate(step);
      save_where_due(step, orders, last);
      longest_step_ = std::max(longest_step_, clock.seconds());
      if (!last) continue;
      end_progress_line();
      if (orders.out_of_time && step < training.steps && !stops_)
        say(text("stopped after training.time_limit_minutes = ", training.time_limit_minutes,
                 ", at step ", step, " of ", training.steps, "\n"));
      if (stops_)
        say(text("stopped at step ", step, " of ", training.steps,
                 orders.at_wall_time ? ", as runtime.wall_time ends" : ", as a signal asked",
                 "; --resume auto goes on\n"));
    }
    close_output();
    finish_save();
  }

  /// Some file systems say only now that there was no room.
  void close_output() {
    world_.agree([&] {
      if (!talks_) return;
      metrics_->close();
      if (trace_) trace_->close();
    });
  }

  // ---- what is asked for while it goes on

  /// Where a stop is asked for before anything is computed: there is nothing to save.
  bool stops_before_first_step() {
    double asked = Triggers::wants_stop() && steps_done_ < settings_.training.steps ? 1.0 : 0.0;
    world_.maximum(&asked, 1);
    if (asked > 0.0)
      say("stopped before the first step, as a signal asked: there is nothing to save\n");
    return asked > 0.0;
  }

  struct Orders {
    bool save = false;          ///< a checkpoint, now
    bool stop = false;          ///< with a checkpoint
    bool at_wall_time = false;  ///< that is why
    bool out_of_time = false;   ///< training.time_limit_minutes
    bool is_writing = false;    ///< some rank works on a checkpoint
  };

  /// The same on all ranks, whichever of them was asked. The clock of rank 0 counts.
  Orders take_orders(double seconds) {
    const Triggers::Requests asked = triggers_.take();
    const bool over = talks_ && settings_.training.time_limit_minutes > 0.0 &&
                      seconds >= 60.0 * settings_.training.time_limit_minutes;
    const bool at_wall_time =
        talks_ && settings_.runtime.wall_time > 0.0 &&
        seconds_since_start() + seconds_to_stop() >= settings_.runtime.wall_time;
    double any[] = {asked.save ? 1.0 : 0.0, asked.stop ? 1.0 : 0.0, at_wall_time ? 1.0 : 0.0,
                    over ? 1.0 : 0.0, saver_.is_busy() ? 1.0 : 0.0};
    world_.maximum(any, 5);
    Orders orders;
    orders.save = any[0] > 0.0;
    orders.at_wall_time = any[2] > 0.0;
    orders.stop = any[1] > 0.0 || orders.at_wall_time;
    orders.out_of_time = any[3] > 0.0;
    orders.is_writing = any[4] > 0.0;
    return orders;
  }

  /// Ends the run where another one has taken its folder: nothing of ours goes there any more.
  void require_folder() {
    world_.agree([&] {
      if (lock_) lock_->require_held();
    });
  }

  /// Whether nothing speaks against more changes in it; the same on all ranks.
  bool has_folder() {
    try {
      require_folder();
    } catch (const AgreedError&) {
      return false;
    }
    return true;
  }

  /// One more step, the save that goes on now and that of the last step, and what may go slower
  /// than before.
  double seconds_to_stop() const {
    constexpr double slowest_disk = 100e6;  // bytes/s of a rank, until a save has shown
    const double save = longest_save_ > 0.0
                            ? longest_save_
                            : static_cast<double>(saver_.bytes()) / world_.size() / slowest_disk;
    return 1.0 + 1.5 * (longest_step_ + (saver_.is_saving() ? 2.0 : 1.0) * save);
  }

  // ---- checkpoints

  void save_where_due(std::int64_t step, const Orders& orders, bool last) {
    const std::int64_t every = settings_.checkpoint.every;
    const bool by_deck = every > 0 && (step % every == 0 || last);
    if (by_deck || orders.save || orders.stop)
      save(step, !last && trainer_.has_staging());
    else if (!orders.is_writing)
      attempt_save([&] { tell(saver_.advance()); });
  }

  void save(std::int64_t step, bool beside) {
    const config::ScopedTimer timer(timers_, "checkpoint");
    finish_save();
    if (saved_step_ == step) return;
    attempt_save([&] {
      checkpoint::Progress progress = trainer_.progress();
      progress.skipped_in_a_row = skipped_in_a_row_;
      saver_.begin(progress, training_data_->tokenizer(), beside, huggingface_config_);
      if (!beside) tell(saver_.finish());
    });
    if (stops_ && saved_step_ != step)
      throw AgreedError(
          text("stopped as asked, but without a checkpoint of step ", step, ": ", failed_save_));
  }

  void finish_save() {
    attempt_save([&] { tell(saver_.finish()); });
  }

  /// A run outlives a save that fails, as long as it does not depend on it.
  template <class Work>
  void attempt_save(const Work& work) {
    try {
      work();
    } catch (const AgreedError& error) {
      end_progress_line();
      failed_save_ = error.what();
      say(text("  checkpoint failed: ", failed_save_, "\n"));
    }
  }

  void tell(const std::optional<Saver::Saved>& saved) {
    if (!saved) return;
    end_progress_line();
    failed_save_.clear();
    saved_step_ = saved->step;
    longest_save_ = std::max(longest_save_, saved->worked);
    char numbers[80];
    std::snprintf(numbers, sizeof numbers, " in %.2f s, of which training waited %.2f s",
                  saved->seconds, saved->stalled);
    say(text("  checkpoint of step ", saved->step, ": ", saved->path, ", ",
             format_bytes(saved->bytes), numbers, "\n"));
    if (!saved->remark.empty()) say(text("  (", saved->remark, ")\n"));
  }

  /// Whoever asked for checkpoints learns from the exit status that the last one is not there.
  void require_saved() const {
    if (!failed_save_.empty())
      throw AgreedError("the last checkpoint could not be saved: " + failed_save_);
  }

  // ---- after each step

  void count_overlap() {
    const runtime::Overlap step =
        runtime::measure_overlap(trainer_.program(Purpose::train), trainer_.action_times());
    spent_.communication += step.communication;
    spent_.hidden += step.hidden;
    spent_.copying += step.copying;
    spent_.copying_hidden += step.copying_hidden;
    spent_.host += step.host;
    spent_.host_hidden += step.host_hidden;
  }

  /// Adds a step's actions, on all ranks, to trace.json, which is whole after each step. The first
  /// step is not like the others: it is left out where there are more.
  void trace(std::int64_t step) {
    const std::int64_t first = std::min(first_step_ + 1, settings_.training.steps);
    if (step < first || step >= first + settings_.output.trace_steps) return;
    std::string part;
    if (step == first) {
      part = runtime::begin_trace();
      int rank = 0;
      for (const std::string& host : world_.gather_texts(host_name()))
        part += runtime::trace_rank(rank++, host);
    }
    const std::string mine =
        runtime::trace_step(trainer_.program(Purpose::train), trainer_.action_times(),
                            world_.rank(), step, trace_origin_);
    // Over the end that the step before has written.
    if (talks_) trace_->add(part);
    world_.show_first(mine, [&](int, const std::string& of_rank) { trace_->add(of_rank); });
    world_.agree([&] {
      if (!talks_) return;
      trace_->end_step(runtime::end_trace());
      if (step + 1 == first + settings_.output.trace_steps) trace_->close();
    });
  }

  void report(std::int64_t step, const StepResult& result, double seconds,
              std::int64_t allocations) {
    const config::TrainingSettings& training = settings_.training;
    const std::int64_t tokens = training.global_batch_size * training.sequence_length;
    // Largest over ranks: a promise that one rank breaks is broken.
    double most[] = {static_cast<double>(runtime::memory_count().peak_bytes),
                     static_cast<double>(allocations),
                     static_cast<double>(runtime::peak_resident_bytes()), seconds};
    world_.maximum(most, 4);
    StepMetrics metrics;
    metrics.step = step;
    metrics.loss = result.loss;
    metrics.grad_norm = result.grad_norm;
    metrics.learning_rate = result.learning_rate;
    metrics.tokens = trainer_.progress().samples * training.sequence_length;
    metrics.step_seconds = most[3];
    metrics.tokens_per_second = static_cast<double>(tokens) / most[3];
    step_seconds_ += most[3];
    metrics.mfu = peak_->utilization(trainer_.model_flops() / most[3]);
    metrics.mfu_uncertain = peak_->is_uncertain();
    metrics.planned_peak_bytes = trainer_.planned_peak_bytes();
    metrics.peak_bytes = static_cast<std::int64_t>(most[0]);
    metrics.allocations = static_cast<std::int64_t>(most[1]);
    metrics.resident_bytes = static_cast<std::int64_t>(most[2]);
    if (result.loss_scale != 1.0) metrics.loss_scale = result.loss_scale;
    metrics.skipped = result.skipped;
    const std::int64_t digest_every = settings_.output.digest_every;
    if (digest_every > 0 && step % digest_every == 0)
      metrics.state_digest = trainer_.state_digest();
    write_metrics(metrics);
    if (talks_) show_progress(metrics);
    if (result.skipped.empty()) {
      skipped_in_a_row_ = 0;
      return;
    }
    end_progress_line();
    say(text("  step ", step, " changed nothing: ", result.skipped, "\n"));
    constexpr int most_skipped = 100;
    if (++skipped_in_a_row_ == most_skipped)
      throw AgreedError(text("step ", step, ": ", most_skipped,
                             " steps in a row changed nothing, the last one since ",
                             result.skipped));
  }

  template <class Metrics>
  void write_metrics(const Metrics& metrics) {
    world_.agree([&] {
      if (!talks_) return;
      if (lock_->is_lost()) lock_->require_held();
      metrics_->write(metrics);
    });
  }

  /// What comes next stands on a line of its own.
  void end_progress_line() {
    if (open_line_) std::cout << "\n";
    open_line_ = false;
  }

  void show_progress(const StepMetrics& metrics) {
    const bool line_is_due = metrics.step == 1 || metrics.step == settings_.training.steps ||
                             metrics.step % settings_.output.every == 0;
    if (!options_.terminal && !line_is_due) return;
    char line[160];
    std::snprintf(
        line, sizeof line,
        "  step %*lld/%lld  loss %.4f  grad norm %.3f  lr %.2e  %s tokens/s  MFU %s%.0f %%",
        static_cast<int>(std::to_string(settings_.training.steps).size()),
        static_cast<long long>(metrics.step), static_cast<long long>(settings_.training.steps),
        metrics.loss, metrics.grad_norm, metrics.learning_rate,
        format_count(std::llround(metrics.tokens_per_second)).c_str(),
        metrics.mfu_uncertain ? "<= " : "", 100.0 * metrics.mfu);
    open_line_ = options_.terminal && !line_is_due;
    std::cout << (options_.terminal ? "\r\033[K" : "") << line << (open_line_ ? "" : "\n")
              << std::flush;
  }

  void validate(std::int64_t step) {
    const config::ScopedTimer timer(timers_, "validation");
    ValidationMetrics metrics;
    metrics.step = step;
    metrics.validation_loss = trainer_.evaluate(*validation_data_, validation_batches_);
    if (const auto bytes = validation_data_->bytes_per_token())
      metrics.bits_per_byte = metrics.validation_loss / std::log(2.0) / *bytes;
    write_metrics(metrics);
    if (!talks_) return;
    end_progress_line();
    std::cout << "  step " << step << "  validation loss " << metrics.validation_loss;
    if (metrics.bits_per_byte) std::cout << "  " << *metrics.bits_per_byte << " bits per byte";
    std::cout << std::endl;
  }

  // ---- after the last step

  void save_weights() {
    const config::ScopedTimer timer(timers_, "save weights");
    require_folder();
    const std::string path = (directory() / "weights.h5").string();
    std::unique_ptr<checkpoint::WeightsWriter> file;
    world_.agree([&] {
      if (talks_)
        file = std::make_unique<checkpoint::WeightsWriter>(
            path, config::write_deck(config::with_absolute_paths(settings_)), steps_done_,
            training_data_->tokenizer(), huggingface_config_);
    });
    std::vector<float> copy;
    trainer_.visit_parameters([&](int u, const float* trained, const float* frozen) {
      world_.agree([&] {
        if (!talks_) return;
        for (const model::Parameter& parameter : trainer_.model().parameters(u)) {
          const float* const values = (parameter.frozen ? frozen : trained) + parameter.offset;
          file->write(parameter.owner, parameter.name, parameter.shape,
                      on_host(values, parameter.elements(), copy));
        }
      });
    });
    world_.agree([&] {
      if (!talks_) return;
      if (lock_) lock_->require_held();  // gathering takes its time
      file->finish();
    });
    say(text("weights are in ", path, "\n"));
  }

  /// After a failure, of which the caller tells: nothing of this is to hide it.
  void keep_what_was_learned() {
    if (!has_folder()) return;
    if (saver_.is_saving()) finish_save();
    // A step that failed may have spoilt the weights.
    if (steps_done_ == 0 || !trainer_.is_intact()) return;
    try {
      save_weights();
    } catch (const AgreedError& error) {
      say(text("weights could not be saved: ", error.what(), "\n"));
    }
  }

  /// `values` where the host can read them: themselves where that is so, else in `copy`.
  static const float* on_host(const float* values, std::int64_t count, std::vector<float>& copy) {
    if (memory_is_host_accessible) return values;
    copy.resize(static_cast<std::size_t>(count));
    math::copy_to_host(Exec(), values, copy.data(), copy.size());
    return copy.data();
  }

  void summarize() {
    const std::string times = timers_.report(world_.mpi());
    double resident = static_cast<double>(runtime::peak_resident_bytes());
    world_.maximum(&resident, 1);
    std::string lines = "\n";
    lines += beside_compute("communication", spent_.communication, spent_.hidden);
    lines +=
        beside_compute("copies between host and device", spent_.copying, spent_.copying_hidden);
    lines += beside_compute("sums and updates on the host", spent_.host, spent_.host_hidden);
    lines += peak();
    say(lines);
    say(text("memory of a rank: planned ", format_bytes(trainer_.planned_peak_bytes()),
             ", counted ", format_bytes(runtime::memory_count().peak_bytes), ", resident at most ",
             format_bytes(static_cast<std::int64_t>(resident)), "\n\n", times));
  }

  /// A line on the peak and the share of it that all steps of this process had. A run that is long
  /// enough, or whose steps were faster than the peak, measures it once more: what was measured at
  /// start was perhaps disturbed, and nothing in the arenas is needed any more.
  std::string peak() {
    constexpr double long_run = 10.0;  // seconds
    const std::int64_t steps = steps_done_ - first_step_ + 1;
    if (steps == 0) return "";
    if (peak_->origin() == PeakRate::Origin::measured &&
        (peak_->is_uncertain() || step_seconds_ > long_run))
      peak_->measure_again(trainer_.measure_peak_flops());
    const double share =
        peak_->utilization(static_cast<double>(steps) * trainer_.model_flops() / step_seconds_);
    return text(peak_->describe(), "; MFU of all steps ", std::llround(100.0 * share), " %\n");
  }

  /// A line on what runs beside compute, of all steps: means over ranks.
  std::string beside_compute(const char* what, double seconds, double hidden) {
    // In whole microseconds, which sum without rounding.
    std::int64_t sums[] = {std::llround(1e6 * seconds), std::llround(1e6 * hidden)};
    world_.sum(sums, 2);
    if (sums[0] == 0) return "";
    return text(
        what, ": ",
        1e-6 * static_cast<double>(sums[0]) / static_cast<double>(steps_done_ * world_.size()),
        " s a step on each rank, ", 100 * sums[1] / sums[0], " % of it while compute went on\n");
  }

  fs::path directory() const { return settings_.output.directory; }

  const config::Settings settings_;
  const RunOptions options_;
  mesh::Mesh mesh_;
  comm::Communicator& world_;
  const int matrix_threads_;  // of each rank
  const bool talks_;
  Trainer trainer_;
  config::Timers timers_;
  std::unique_ptr<data::Dataset> training_data_, validation_data_;
  std::unique_ptr<checkpoint::ParameterSource> weights_;  // to begin with, until they are read
  std::string huggingface_config_;  // of the model that the run began with; empty: none is known
  std::int64_t validation_batches_ = 0;
  std::unique_ptr<MetricsFile> metrics_;
  std::optional<PeakRate> peak_;
  double step_seconds_ = 0.0;  // of all steps of this process
  Triggers triggers_;
  std::unique_ptr<FolderLock> lock_;  // of output.directory, on rank 0
  Saver saver_;
  std::vector<std::string> candidates_;  // checkpoints to go on from, the best first
  std::vector<std::string> damaged_;     // those that turned out to be so
  bool origin_is_newest_ = false;        // of its folder, but for damaged ones
  bool origin_is_own_ = false;           // whether that which was taken is in this run's folder
  std::int64_t steps_done_ = 0;
  std::int64_t first_step_ = 1;   // of this process
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
  std::string failed_save_;       // why the last one failed
  bool stops_ = false;            // early, as asked
  double longest_step_ = 0.0, longest_save_ = 0.0;
  int skipped_in_a_row_ = 0;
  runtime::Overlap spent_;     // by this rank in all steps
  double trace_origin_ = 0.0;  // the same moment on all ranks
  std::optional<TraceFile> trace_;
  bool open_line_ = false;  // a progress line that the next one replaces
};

}  // namespace

RunEnd run(const config::Settings& settings, MPI_Comm parent, const RunOptions& options) {
  return Run(settings, parent, options).all();
}

}  // namespace ostrakon::train
