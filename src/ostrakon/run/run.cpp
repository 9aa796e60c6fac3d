// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/run.hpp>

#include <algorithm>
#include <iostream>
#include <memory>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/timing.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/preflight/preflight.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/ranks.hpp>
#include <ostrakon/run/references.hpp>
#include <ostrakon/run/resume_loader.hpp>
#include <ostrakon/run/run_data.hpp>
#include <ostrakon/run/run_description.hpp>
#include <ostrakon/run/run_folder.hpp>
#include <ostrakon/run/save_policy.hpp>
#include <ostrakon/run/step_recorder.hpp>
#include <ostrakon/run/stop_requests.hpp>
#include <ostrakon/run/usage_summary.hpp>
#include <ostrakon/run/watching.hpp>
#include <ostrakon/saving/save_weights.hpp>
#include <ostrakon/saving/saver.hpp>
#include <ostrakon/trainer/attention_choice.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/watch/fault.hpp>
#include <ostrakon/watch/progress.hpp>
#include <stdexcept>

namespace ostrakon::train {
namespace {

constexpr const char* products_name = "products.json";

/// A run from start to end: the order in which everything happens.
class Run {
 public:
  Run(const config::Settings& settings, MPI_Comm parent, const RunOptions& options)
      : settings_(config::with_absolute_paths(settings)),
        options_(options),
        ranks_(make_ranks(settings, parent, options.dry_run)),
        console_(std::cout, {world().rank() == 0, options.terminal, settings.training.steps,
                             settings.output.every}),
        trainer_(make_trainer(settings, ranks_.mesh)),
        folder_(settings_.output.directory, world(), console_, options.break_lock),
        saver_(settings_, ranks_.mesh, trainer_),
        saves_(saver_, console_, timers_, settings_.checkpoint.every, world().size()),
        resume_(settings_, options_, ranks_.mesh, saver_.folder(), console_),
        stop_requests_(settings_, world()),
        recorder_(settings_, trainer_, world(), folder_, console_) {
    saver_.guard([this] { folder_.check_before_save(); });
  }

  RunEnd all() {
    console_.say(describe_run(settings_, ranks_.mesh, trainer_, ranks_.matrix_threads));
    trainer_.require_within(settings_.memory_limit);
    if (!options_.dry_run) trainer_.require_memory();
    data_ = open_run_data(settings_, trainer_.model().loss_terms(), options_, world(), console_);
    tokenizer_ = data_.training->tokenizer();
    evaluation_ = about_path(settings_, "training.evaluate", [this] {
      return Evaluation(settings_, tokenizer_, options_.open_questions, world());
    });
    console_.say(evaluation_.describe());
    if (!options_.dry_run) about_output([this] { folder_.lock_if_there(); });
    resume_.find();
    std::unique_ptr<checkpoint::ParameterSource> weights;
    if (!resume_.has_found()) weights = open_weights();
    if (options_.dry_run) {
      console_.say("dry run: nothing was allocated\n");
      return RunEnd::done;
    }
    // It takes steps of a model of its own, which the watchdog is not to see.
    if (settings_.runtime.preflight)
      console_.say(text("preflight: nothing wrong found\n",
                        preflight::require_sound(ranks_.mesh, settings_,
                                                 trainer_.program(plan::Purpose::train).plan)));
    watching_ = std::make_unique<Watching>(settings_, ranks_.mesh, trainer_, console_);
    const watch::OccupationScope starting(watch::Occupation::starting);
    if (stops_before_first_step()) return RunEnd::stopped;
    about_output([this] { resume_.require_none_since(folder_.make()); });
    if (resume_.has_found()) trainer_.take_products_of(folder_.file(products_name));
    trainer_.allocate();
    console_.say(trainer_.products().lines);
    console_.say(describe_graphs(trainer_));
    if (const std::string attention = attention_text(); !attention.empty())
      console_.say(text("attention by ", attention, "\n"));
    inject_flip();
    recorder_.find_peak();
    const ResumeLoader::Loaded from = begin_state(std::move(weights));
    time_actions();
    about_output([&] { open_output(from); });
    if (stops_before_first_step()) return RunEnd::stopped;
    RunEnd end = RunEnd::done;
    try {
      end = train();
    } catch (const CollectiveError& error) {
      console_.end_line();
      save_weights_on_failure(error.what());
      throw;
    }
    const watch::OccupationScope ending(watch::Occupation::ending);
    if (end == RunEnd::done) about_output([this] { save_final_weights(); });
    const config::TrainingSettings& training = settings_.training;
    console_.say(describe_sources(*data_.training, samples_used()));
    console_.say(recorder_.describe_stragglers());
    console_.say(describe_end(timers_, trainer_, recorder_.usage(), ranks_.mesh,
                              training.global_batch_size * training.sequence_length));
    saves_.require_saved();
    if (end == RunEnd::done) require_updates();
    return end;
  }

 private:
  comm::Communicator& world() { return ranks_.mesh.world(); }

  template <class Work>
  void about_output(const Work& work) const {
    about_path(settings_, "output.directory", work);
  }

  std::unique_ptr<checkpoint::ParameterSource> open_weights() {
    auto weights =
        open_initial_weights(settings_, options_, data_.training->tokenizer(), world(), console_);
    if (weights) {
      huggingface_config_ = weights->huggingface_config();
      keep_tokenizer(tokenizer_of(*weights));
    }
    return weights;
  }

  /// Returns the tokenizer of weights, for which rank 0 reads a file, if there is one. Collective.
  std::string tokenizer_of(const checkpoint::ParameterSource& weights) {
    std::string found;
    world().run_on_root([&] { found = weights.tokenizer(); });
    found = world().broadcast(found, 0);
    return found.empty() ? data::unknown_tokenizer : found;
  }

  /// Keeps the tokenizer that the weights were trained with, if the data are synthetic and have
  /// none.
  void keep_tokenizer(const std::string& of_weights) {
    if (tokenizer_ == data::no_tokenizer) tokenizer_ = of_weights;
  }

  /// Whether a stop is requested before anything is computed: then there is nothing to save.
  bool stops_before_first_step() {
    const bool stops = stop_requests_.wants_stop(steps_done_ < settings_.training.steps);
    if (stops)
      console_.say(
          "stopped before the first step, as requested by a signal: there is nothing to save\n");
    return stops;
  }

  ResumeLoader::Loaded begin_state(std::unique_ptr<checkpoint::ParameterSource> weights) {
    const watch::OccupationScope loading(watch::Occupation::loading);
    const config::ScopedTimer timer(timers_, "initialize");
    const std::string references =
        settings_.data.reference.empty() ? folder_.file("reference") : settings_.data.reference;
    if (!resume_.has_found()) {
      trainer_.initialize(weights.get());
      about_path(settings_, "data.reference", [&] {
        const watch::OccupationScope validating(watch::Occupation::validating);
        make_references(references, settings_, data_, trainer_, world(), console_);
      });
      return {};
    }
    about_path(settings_, "data.reference", [&] { read_references(references, data_, world()); });
    ResumeLoader::Loaded from = resume_.load(trainer_, *data_.training);
    steps_done_ = from.step;
    huggingface_config_ = from.huggingface_config;
    keep_tokenizer(from.tokenizer);
    if (from.is_saved) saves_.note_saved(from.step);
    return from;
  }

  /// Flips a bit later on, where runtime.inject says so: other faults are of what watches the run.
  void inject_flip() {
    if (settings_.runtime.inject.empty()) return;
    const watch::Fault fault = watch::parse_fault(settings_.runtime.inject);
    if (fault.kind != watch::FaultKind::flip) return;
    world().run_collectively([&] {
      if (fault.rank == world().rank()) trainer_.flip(fault);
    });
  }

  void time_actions() {
    trainer_.observe([this](const plan::Action& action, bool begins) {
      if (begins)
        timers_.start(plan::name(action.kind));
      else
        timers_.stop(plan::name(action.kind));
    });
    if (trainer_.streams() != runtime::Streams::threads) return;
    trainer_.observe_runs([this](const runtime::Program& program) { time_host(program); });
  }

  /// Times the host's work for the whole step on its own thread, which the other observer does not
  /// see.
  void time_host(const runtime::Program& program) {
    const std::vector<plan::Action>& actions = program.plan.actions;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      const bool is_of_step = actions[a].stream == plan::Stream::host && actions[a].unit < 0;
      if (!is_of_step || actions[a].kind == plan::Kind::begin) continue;
      const runtime::ActionTime& time = trainer_.action_times()[a];
      timers_.add(plan::name(actions[a].kind), time.end - time.begin);
    }
  }

  void open_output(const ResumeLoader::Loaded& from) {
    const std::vector<plan::StageSummary> stages = summarize_stages(ranks_.mesh, trainer_);
    world().run_on_root([&] {
      resume_.tidy(from);
      folder_.open_metrics(from.step, from.is_own);
      folder_.write_file("deck.yaml", config::write_deck(settings_));
      folder_.write_file("plan.json", plan_json(settings_, ranks_.mesh, trainer_, stages));
      if (!trainer_.products().json.empty())
        folder_.write_file(products_name, trainer_.products().json);
      recorder_.trace().open(folder_.file("trace.json"));
      folder_.keep_earlier_weights();
    });
  }

  RunEnd train() {
    const config::TrainingSettings& training = settings_.training;
    if (steps_done_ > 0) console_.say(describe_sources(*data_.training, samples_used()));
    console_.say("training\n");
    if (steps_done_ == training.steps)
      console_.say(text("  all ", training.steps, " steps of training.steps are done already\n"));
    if (settings_.checkpoint.every > 0 || settings_.runtime.wall_time > 0.0) saver_.prepare();
    world().barrier();
    recorder_.begin(steps_done_ + 1);
    const watch::OccupationScope between_steps(watch::Occupation::between_steps);
    const Stopwatch since_start;
    double longest_step = 0.0;  // seconds, with the work after it
    StepEnd end;
    while (steps_done_ < training.steps && !end.is_last) {
      const Stopwatch clock;
      take_step(clock);
      const double to_stop = seconds_to_stop(longest_step, saves_.seconds_to_save());
      const Requests requests =
          stop_requests_.take(since_start.seconds(), to_stop, saver_.is_busy());
      end = end_of_step(steps_done_, training.steps, requests);
      if (data_.validation.is_due(end)) validate();
      if (evaluation_.is_due(end)) answer_questions();
      saves_.after_step(end, requests, [this](bool overlapped) { begin_save(overlapped); });
      longest_step = std::max(longest_step, clock.seconds());
      if (end.is_last) console_.say(describe_early_end(end, requests, training));
    }
    recorder_.end();
    const watch::OccupationScope saving(watch::Occupation::saving);
    saves_.finish();
    close_output();
    return end.stops ? RunEnd::stopped : RunEnd::done;
  }

  void take_step(const Stopwatch& clock) {
    StepResult result;
    {
      recorder_.begin_step();
      const config::ScopedTimer timer(timers_, "step");
      result = trainer_.step(*data_.training, steps_done_ + 1);
    }
    ++steps_done_;
    recorder_.record(steps_done_, result, clock.seconds(), data_.training->sources(samples_used()));
  }

  void validate() {
    const watch::OccupationScope validating(watch::Occupation::validating);
    const config::ScopedTimer timer(timers_, "validation");
    recorder_.record(data_.validation.measure(trainer_, steps_done_));
  }

  void answer_questions() {
    const watch::OccupationScope validating(watch::Occupation::validating);
    const config::ScopedTimer timer(timers_, "evaluation");
    recorder_.record(evaluation_.measure(trainer_, steps_done_));
  }

  /// Fails at the end of a run that has not changed anything recently. All its state is saved by
  /// now.
  void require_updates() {
    const std::string problem = trainer_.skipped().problem(steps_done_);
    if (problem.empty()) return;
    std::string advice = "; the parameters may be ruined";
    try {
      const std::vector<std::string> before =
          console_.is_root() ? saver_.folder().fallbacks() : std::vector<std::string>();
      if (!before.empty()) advice += text(": resume from ", before.back(), " with other settings");
    } catch (const Error&) {
      // The original problem is reported instead.
    }
    throw CollectiveError(text("training is done, but ", problem, world().broadcast(advice, 0)));
  }

  std::uint64_t samples_used() const {
    return static_cast<std::uint64_t>(trainer_.progress().samples);
  }

  void begin_save(bool overlapped) {
    const watch::OccupationScope saving(watch::Occupation::saving);
    saver_.describe_data(data::facts_to_keep(*data_.training, samples_used()));
    saver_.begin(trainer_.progress(), tokenizer_, overlapped, huggingface_config_);
  }

  void close_output() {
    world().run_on_root([&] {
      try {
        recorder_.close_trace();
      } catch (const Error&) {
        folder_.close_metrics();  // if that fails, too, rows are more important
        throw;
      }
      folder_.close_metrics();
    });
  }

  void save_final_weights() {
    const watch::OccupationScope writing(watch::Occupation::writing_weights);
    const config::ScopedTimer timer(timers_, "save weights");
    folder_.require_held();
    const auto save = [this](const std::string& path) {
      save_weights(trainer_, world(), path,
                   {config::write_deck(settings_), steps_done_, tokenizer_, huggingface_config_},
                   [this] { folder_.check(); });
    };
    const std::string path = folder_.file("weights.h5");
    save(path);
    console_.say(text("weights are in ", path, "\n"));
    if (settings_.ema == 0.0) return;
    const std::string averages = folder_.file("weights-ema.h5");
    trainer_.with_averages([&] { save(averages); });
    console_.say(text("their averages are in ", averages, "\n"));
  }

  /// Saves results after a failure for the reason `why`, which the caller reports: no error here
  /// may hide it.
  void save_weights_on_failure(const std::string& why) {
    if (!folder_.is_held()) return;
    if (saver_.is_saving()) saves_.finish();
    try {
      close_output();
    } catch (const CollectiveError& error) {
      if (error.what() != why) console_.say(text(error.what(), "\n"));
    }
    // A failed step may have damaged the weights.
    if (steps_done_ == 0 || !trainer_.is_intact()) return;
    try {
      save_final_weights();
    } catch (const CollectiveError& error) {
      console_.say(text("weights could not be saved: ", error.what(), "\n"));
    }
  }

  const config::Settings settings_;
  const RunOptions options_;
  Ranks ranks_;
  Console console_;
  Trainer trainer_;
  config::Timers timers_;
  RunData data_;
  Evaluation evaluation_;
  RunFolder folder_;
  Saver saver_;
  SavePolicy saves_;
  ResumeLoader resume_;
  StopRequests stop_requests_;
  StepRecorder recorder_;
  std::int64_t steps_done_ = 0;
  std::string tokenizer_;           // tokenizer of the parameters
  std::string huggingface_config_;  // configuration of the model that the run began with; empty:
                                    // not known
  std::unique_ptr<Watching> watching_;  // last member: it ends before what it watches
};

}  // namespace

RunEnd run(const config::Settings& settings, MPI_Comm parent, const RunOptions& options) {
  if (!settings.choose.empty() || settings.chooses_recompute)
    throw std::logic_error("what a deck leaves to choose is of the caller: tune::choose_for_run");
  return Run(settings, parent, options).all();
}

}  // namespace ostrakon::train
