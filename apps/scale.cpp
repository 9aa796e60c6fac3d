// SPDX-License-Identifier: Apache-2.0

// ostrakon-scale: plans scaling studies, collects their runs, and reports speedup and efficiency.

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/version.hpp>
#include <string>

#include "scale_commands.hpp"
#include "serial_program.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::apps::scale_program;

constexpr const char* usage =
    R"(usage: ostrakon-scale plan DECK --ranks 1,2,4,8 --output DIR [options]
       ostrakon-scale collect DIR [--partial]
       ostrakon-scale report DIR

plan    writes a study into the new folder DIR: for each number of ranks a folder such as
        DIR/ranks-4 with deck.yaml and a job script, job.sh; DIR/run-all.sh, which runs or submits
        all of them; and DIR/study.json. Prints what a rank needs and sends in a step on each number
        of ranks (exact), and how long a step is predicted to take. Starts no ranks
    --ranks N,N,...            numbers of ranks, increasing
    --output DIR               where to write; folders on the way are made
    --scaling strong|weak      strong: the same global batch on all ranks (default). weak: the deck's
                               global batch is that of the fewest ranks, and grows with their number
    --ranks-per-node N         ranks of a node; default: parallel.ranks_per_node of the deck; where
                               it is 0 as many as the machine of --machine has, or all ranks
    --launcher mpiexec|slurm|pbs|flux
                               what starts the ranks (mpiexec)
    --time LIMIT               of each job, such as 30 (minutes), 02:00:00 or 1-12 (01:00:00)
    --template FILE            a job script of your own, with @PROGRAM@ where ostrakon-train stands
                               and, where needed, @NAME@, @RANKS@, @NODES@, @RANKS_OF_NODE@, @TIME@,
                               @REPEATS@
    --steps N                  steps of a run (22)
    --warmup N                 steps at its begin that do not count (2)
    --trace-steps N            steps to record in trace.json, which the factors come from; default:
                               all, or as many as make 200,000 events, but three that count
    --repeat N                 runs of each size, one after the other in its job (1)
    --set SECTION.KEY=VALUE    change a setting of the deck; may be given many times
    --machine FILE             step times are predicted for the machine that a file describes, as
                               ostrakon-plan --time does; else there is no prediction
collect reads metrics.jsonl and trace.json of all runs and writes DIR/collected.json and
        DIR/collected.csv. Refuses runs that are not finished or not of the study
    --partial                  leave such runs out, and list them
report  writes DIR/report.html, with plots, DIR/report.md and DIR/report.csv: speedup and efficiency
        with 95 % confidence intervals, the factors that the efficiency is a product of, outlier
        steps, and predictions next to measurements. The first two are made by the Python package
        ostrakon_report from DIR/collected.json. Prints lines for other tools:
        figure: ranks_4.efficiency 87.5 %

--help and --version print and exit. Exit status: 0 done, 1 bad input or failure.
)";

void run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") {
      std::cout << usage;
      return;
    }
    if (argument == "--version") {
      std::cout << program << " " << version() << "\n";
      return;
    }
  }
  const std::string command = argc > 1 ? argv[1] : "";
  require(!command.empty(), "no command; expected plan, collect or report (see --help)");
  if (command == "plan") return plan_study(argc, argv);
  if (command == "collect") return collect_study(argc, argv);
  if (command == "report") return report_study(argc, argv);
  throw Error(text("unknown command '", command, "'; expected plan, collect or report"));
}

}  // namespace

int main(int argc, char** argv) {
  return ostrakon::apps::run_serial_program(program, [&] {
    run(argc, argv);
    return 0;
  });
}
