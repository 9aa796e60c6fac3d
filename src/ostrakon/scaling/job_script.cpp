// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/job_script.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <utility>
#include <vector>

namespace ostrakon::scaling {
namespace {

struct Text {
  const char* directives;
  const char* folder;  ///< command that changes to the folder of the script
  const char* launch;
};

Text text_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::slurm:
      return {R"(#SBATCH --job-name=@NAME@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks=@RANKS@
#SBATCH --ntasks-per-node=@RANKS_OF_NODE@
#SBATCH --time=@TIME@
#SBATCH --exclusive
#SBATCH --output=job-%j.log
)",
              "cd \"$SLURM_SUBMIT_DIR\"", "srun --kill-on-bad-exit=1"};
    case Launcher::pbs:
      return {R"(#PBS -N @NAME@
#PBS -l select=@NODES@:ncpus=@RANKS_OF_NODE@:mpiprocs=@RANKS_OF_NODE@
#PBS -l place=excl
#PBS -l walltime=@TIME@
#PBS -j oe
)",
              "cd \"$PBS_O_WORKDIR\"", "mpiexec -n @RANKS@"};
    case Launcher::flux:
      return {R"(# flux: --job-name=@NAME@
# flux: -N@NODES@
# flux: -n@RANKS@
# flux: -t @TIME@
# flux: --exclusive
# flux: --output=job-{{id}}.log
)",
              ": # flux starts it in the folder in which it was submitted",
              "flux run -N@NODES@ -n@RANKS@"};
    case Launcher::mpiexec:
      break;
  }
  return {"", "cd \"$(dirname \"$0\")\"", "mpiexec -n @RANKS@"};
}

const char* submit_command(Launcher launcher) {
  switch (launcher) {
    case Launcher::slurm:
      return "sbatch job.sh";
    case Launcher::pbs:
      return "qsub job.sh";
    case Launcher::flux:
      return "flux batch job.sh";
    case Launcher::mpiexec:
      break;
  }
  return "bash job.sh";
}

}  // namespace

std::string job_template(Launcher launcher) {
  const Text parts = text_of(launcher);
  return text("#!/usr/bin/env bash\n", parts.directives, R"(
# Edit: modules, PATH, and how ranks are bound to cores or GPUs. What runs is deck.yaml, here.
# module load ...
set -eu
)",
              parts.folder, R"(
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
for run in @REPEATS@; do
  )",
              parts.launch, R"( @PROGRAM@ deck.yaml --set output.directory="run-$run"
done
)");
}

std::string render_template(const std::string& job_template, const Job& job,
                            const std::string& source) {
  std::string repeats;
  for (int run = 1; run <= job.repeat; ++run) repeats += text(run == 1 ? "" : " ", run);
  const std::vector<std::pair<std::string, std::string>> values = {
      {"NAME", job.name},
      {"RANKS", text(job.ranks)},
      {"NODES", text(job.nodes)},
      {"RANKS_OF_NODE", text(job.ranks_of_node)},
      {"TIME", job.time},
      {"REPEATS", repeats},
      {"PROGRAM", shell_word(job.program)}};
  require(job_template.find("@PROGRAM@") != std::string::npos, source,
          ": has no @PROGRAM@; expected it where ostrakon-train is started");
  std::string script;
  for (std::size_t at = 0; at < job_template.size();) {
    const std::size_t begin = job_template.find('@', at);
    const std::size_t end =
        begin == std::string::npos
            ? begin
            : job_template.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", begin + 1);
    // This @ begins no word in capitals, for example in an e-mail address.
    if (end == std::string::npos || job_template[end] != '@' || end == begin + 1) {
      const std::size_t stop = begin == std::string::npos ? job_template.size() : begin + 1;
      script.append(job_template, at, stop - at);
      at = stop;
      continue;
    }
    script.append(job_template, at, begin - at);
    const std::string word = job_template.substr(begin + 1, end - begin - 1);
    const std::string* value = nullptr;
    for (const auto& one : values)
      if (one.first == word) value = &one.second;
    require(value != nullptr, source, ": @", word,
            "@ is unknown; expected @NAME@, @RANKS@, "
            "@NODES@, @RANKS_OF_NODE@, @TIME@, @REPEATS@ or @PROGRAM@");
    script += *value;
    at = end + 1;
  }
  return script;
}

std::string run_all_script(const Study& study) {
  std::string script = "#!/usr/bin/env bash\n# ";
  script += study.launcher == Launcher::mpiexec
                ? "Runs all jobs of the study, one after the other.\n"
                : "Submits all jobs of the study.\n";
  script += "set -eu\ncd \"$(dirname \"$0\")\"\n";
  for (const StudySize& size : study.sizes)
    script += text("(cd ", shell_word(size.folder), " && ", submit_command(study.launcher), ")\n");
  return script;
}

}  // namespace ostrakon::scaling
