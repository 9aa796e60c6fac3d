// SPDX-License-Identifier: Apache-2.0
// Requests and their answers, a line of JSON each.
#include <cstdint>
#include <ostrakon/base/error.hpp>

#include "../common/output_file.hpp"
#include "../text_model/records.hpp"
#include "job.hpp"

namespace ostrakon::apps {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens ids_of(const Json& record, const char* key, std::int64_t vocabulary) {
  Tokens ids;
  for (const Json& id : record[key]) {
    require(id.is_number_integer() && id >= 0 && id < vocabulary, "`", key, "` has ", id.dump(),
            " as token ", ids.size(), "; expected an id from 0 to ", vocabulary - 1);
    ids.push_back(id);
  }
  return ids;
}

/// Returns a request whose parts are ids: nothing is put before them.
evaluate::Sequence sequence_of_ids(Tokens context, const Tokens& continuation) {
  require(!context.empty(), "expected at least one id to predict others from");
  require(!continuation.empty(), "expected at least one id to predict");
  evaluate::Sequence made;
  made.first = static_cast<std::int64_t>(context.size());
  made.tokens = std::move(context);
  made.tokens.insert(made.tokens.end(), continuation.begin(), continuation.end());
  return made;
}

evaluate::Sequence sequence_of(const Json& record, std::int64_t vocabulary,
                               const FindEncoder& encoder) {
  const bool is_whole = record.contains("text");
  require(is_whole != (record.contains("context") && record.contains("continuation")),
          "expected either `text`, or `context` and `continuation`");
  if (is_whole && !record["text"].is_array()) return encoder().text(text_of(record, "text"));
  if (is_whole) {
    Tokens context = ids_of(record, "text", vocabulary);
    const Tokens rest(context.begin() + (context.empty() ? 0 : 1), context.end());
    context.resize(context.empty() ? 0 : 1);
    return sequence_of_ids(std::move(context), rest);
  }
  require(record["context"].is_array() == record["continuation"].is_array(),
          "expected `context` and `continuation` both as texts, or both as lists of ids");
  if (record["context"].is_array())
    return sequence_of_ids(ids_of(record, "context", vocabulary),
                           ids_of(record, "continuation", vocabulary));
  return encoder().pair(text_of(record, "context"), text_of(record, "continuation"));
}

}  // namespace

Job request_job(const EvaluateLine& line, std::int64_t vocabulary, const FindEncoder& encoder) {
  Job job;
  std::vector<Json> names;  // `id` of each, null where it has none
  for_each_record(*line.requests_file, [&](const Json& record) {
    job.sequences.push_back(sequence_of(record, vocabulary, encoder));
    names.push_back(record.value("id", Json()));
  });
  job.write = [to = line.answers_file, names](const std::vector<evaluate::Score>& scores,
                                              const evaluate::WindowSettings&) {
    std::string lines;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      Json answer;
      if (!names[i].is_null()) answer["id"] = names[i];
      answer["log_probability"] = scores[i].log_probability;
      answer["greedy"] = scores[i].is_greedy;
      answer["tokens"] = scores[i].tokens;
      lines += answer.dump() + "\n";
    }
    if (to) return write_file(*to, lines);
    lines.pop_back();
    write_line(lines);
  };
  return job;
}

std::vector<Job> read_jobs(const EvaluateLine& line, std::int64_t vocabulary,
                           const FindEncoder& encoder) {
  std::vector<Job> jobs;
  for (const std::string& path : line.text_files) jobs.push_back(text_job(line, path, encoder));
  for (const std::string& path : line.token_files)
    jobs.push_back(token_job(line, path, vocabulary));
  for (const std::string& path : line.choice_files) jobs.push_back(choice_job(line, path, encoder));
  if (line.requests_file) jobs.push_back(request_job(line, vocabulary, encoder));
  require(!jobs.empty(), "nothing to evaluate; expected --text, --tokens, --choices or --requests");
  return jobs;
}

}  // namespace ostrakon::apps
