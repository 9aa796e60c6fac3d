// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/scaling/collected.hpp>
#include <ostrakon/scaling/run_metrics.hpp>
#include <ostrakon/scaling/run_trace.hpp>

namespace ostrakon::scaling {
namespace {

std::string file_of(const std::string& study, const std::string& run, const char* name) {
  return (std::filesystem::path(study) / run / name).string();
}

/// The parts of each rank, for each traced step that counts.
using PartsOfSteps = std::map<std::int64_t, std::vector<RankParts>>;

PartsOfSteps divide_steps(const RunTrace& trace, const std::vector<MetricsRow>& rows,
                          const Study& study, const std::string& file) {
  PartsOfSteps divided;
  for (const auto& [step, ranks] : trace.steps) {
    require(step <= study.steps, "'", file, "': has step ", step, "; the study has ", study.steps);
    if (step <= study.warmup) continue;
    const double seconds = rows[static_cast<std::size_t>(step - 1)].seconds;
    std::vector<RankParts>& of_step = divided[step];
    double computing = 0.0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const double span = span_of(ranks[rank]);
      require(span <= 1.01 * seconds + 1e-3, "'", file, "': step ", step, " takes ", span,
              " s on rank ", rank, ", but ", seconds,
              " s in metrics.jsonl; expected both to be of one run");
      of_step.push_back(divide_step(ranks[rank], seconds));
      computing += of_step.back().of(Part::compute);
    }
    require(computing > 0.0, "'", file, "': step ", step, " computes nothing");
  }
  require(!divided.empty(), "'", file, "': has no step after the ", study.warmup,
          " of warm-up; expected steps 2 to ", study.trace_steps + 1);
  return divided;
}

/// Finds the stream and rank of an outlier that grew most over the median of traced steps.
void explain(OutlierStep& outlier, const PartsOfSteps& divided) {
  const auto found = divided.find(outlier.step);
  if (found == divided.end()) return;
  outlier.is_traced = true;
  const auto consider = [&](std::size_t rank, const char* what, const auto& seconds_of) {
    std::vector<double> others;
    for (const auto& step : divided) others.push_back(seconds_of(step.second[rank]));
    const double more = seconds_of(found->second[rank]) - median(others);
    if (more <= outlier.more) return;
    outlier.more = more;
    outlier.stream = what;
    outlier.rank = static_cast<int>(rank);
  };
  for (std::size_t rank = 0; rank < found->second.size(); ++rank) {
    for (const Named<plan::Stream>& stream : plan::stream_names)
      consider(rank, stream.name, [&](const RankParts& of_rank) {
        return of_rank.by_stream[static_cast<std::size_t>(stream.value)];
      });
    consider(rank, "waiting", [](const RankParts& of_rank) { return of_rank.of(Part::waiting); });
  }
}

}  // namespace

CollectedRun collect_run(const std::string& study_folder, const Study& study, const StudySize& size,
                         int run) {
  CollectedRun collected;
  collected.folder = Study::run_folder(size, run);
  collected.ranks = size.ranks;
  collected.run = run;
  const std::vector<MetricsRow> rows =
      read_metrics(file_of(study_folder, collected.folder, "metrics.jsonl"), study, size);
  const std::string trace_file = file_of(study_folder, collected.folder, "trace.json");
  const RunTrace trace = read_trace(trace_file);
  require(trace.ranks == size.ranks, "'", trace_file, "': is of ", trace.ranks,
          trace.ranks == 1 ? " rank" : " ranks", "; expected ", size.ranks,
          trace.ranks == 1 && size.ranks > 1
              ? ": each process was a run of its own, as if mpiexec were another MPI's"
              : "");
  collected.hosts = trace.hosts;

  std::vector<double> seconds;
  for (const MetricsRow& row : rows) {
    if (row.step <= study.warmup) continue;
    seconds.push_back(row.seconds);
    collected.mfu += row.mfu;
    collected.mfu_uncertain = collected.mfu_uncertain || row.mfu_uncertain;
    collected.peak_bytes = std::max(collected.peak_bytes, row.peak_bytes);
  }
  collected.steps = static_cast<std::int64_t>(seconds.size());
  collected.mfu /= static_cast<double>(seconds.size());
  collected.step_seconds = interval_of_steps(seconds);
  const auto tokens = static_cast<double>(size.tokens_per_step);
  collected.tokens_per_second = tokens / collected.step_seconds.mean;
  collected.tokens_per_second_per_rank = collected.tokens_per_second / size.ranks;

  const PartsOfSteps divided = divide_steps(trace, rows, study, trace_file);
  ShareSums sums;
  for (const auto& step : divided) sums.add(step.second);
  collected.traced_steps = sums.steps();
  collected.shares = sums.shares();
  collected.factors =
      factors_of(collected.shares, tokens / size.ranks, collected.step_seconds.mean);

  for (const std::size_t index : find_outliers(seconds)) {
    OutlierStep outlier;
    outlier.step = study.warmup + 1 + static_cast<std::int64_t>(index);
    outlier.seconds = seconds[index];
    outlier.usual = median(seconds);
    explain(outlier, divided);
    collected.outliers.push_back(std::move(outlier));
  }
  return collected;
}

Collected collect(const std::string& study_folder, bool partial) {
  Collected collected;
  collected.study = read_study_of(study_folder);
  for (const StudySize& size : collected.study.sizes)
    for (int run = 1; run <= collected.study.repeat; ++run) {
      try {
        collected.runs.push_back(collect_run(study_folder, collected.study, size, run));
      } catch (const Error& error) {
        if (!partial) throw Error(text(error.what(), " (--partial leaves such runs out)"));
        collected.missing.push_back({Study::run_folder(size, run), error.what()});
      }
    }
  if (collected.runs.empty())
    throw Error(text("'", study_folder, "': no run can be used; ", collected.missing[0].reason));
  return collected;
}

}  // namespace ostrakon::scaling
