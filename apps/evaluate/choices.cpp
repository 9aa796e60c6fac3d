// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

namespace ostrakon::apps {

Job choice_job(const EvaluateLine& line, const std::string& path, const FindEncoder& encoder) {
  const train::QuestionFile file = read_questions(path, line.delimiter, encoder, Greedy::known);
  Job job;
  job.sequences = file.sequences;
  job.write = [path, json = line.json, file](const auto& scores, const auto& cut) {
    Json found;
    found["questions"] = file.questions;
    for (const auto& [what, value] : file.judge(scores)) found[what] = value;
    add_cut(found, cut);
    write_found(path, found, json);
  };
  return job;
}

}  // namespace ostrakon::apps
