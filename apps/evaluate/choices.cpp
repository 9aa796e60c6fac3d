// SPDX-License-Identifier: Apache-2.0
// Questions with several answers, of which the likeliest is the model's.
#include <cmath>
#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/utf8.hpp>

#include "job.hpp"
#include "records.hpp"

namespace ostrakon::apps {
namespace {

/// A question: its choices are sequences one after the other.
struct Question {
  std::vector<double> characters, bytes;  ///< of each choice
  std::size_t answer;
};

double characters_of(const std::string& text) {
  double count = 0.0;
  for (std::size_t at = 0; at < text.size(); at += texts::utf8_length(text[at])) ++count;
  return count;
}

Question question_of(const Json& record) {
  require(record.contains("choices") && record["choices"].is_array() && !record["choices"].empty(),
          "expected a list of texts as `choices`");
  Question question{{}, {}, 0};
  for (const Json& choice : record["choices"]) {
    require(choice.is_string() && !choice.get_ref<const std::string&>().empty(),
            "expected a list of texts as `choices`, none of them empty");
    question.characters.push_back(characters_of(choice));
    question.bytes.push_back(static_cast<double>(choice.get_ref<const std::string&>().size()));
  }
  const auto choices = static_cast<std::int64_t>(question.bytes.size());
  const Json answer = record.value("answer", Json());
  require(answer.is_number_integer() && answer >= 0 && answer < choices,
          "expected the number of a choice as `answer`, 0 to ", choices - 1);
  question.answer = answer;
  return question;
}

/// Whether the right answer has the largest log-probability for each of its `sizes`; of equal ones
/// the first counts.
bool is_chosen(const Question& question, const evaluate::Score* scores,
               const std::vector<double>& sizes) {
  std::size_t best = 0;
  const auto value = [&](std::size_t i) { return scores[i].log_probability / sizes[i]; };
  for (std::size_t i = 1; i < sizes.size(); ++i)
    if (value(i) > value(best)) best = i;
  return best == question.answer;
}

Json found_of(const std::vector<Question>& questions, const std::vector<evaluate::Score>& scores) {
  double plain = 0.0, by_characters = 0.0, by_bytes = 0.0, greedy = 0.0, loss = 0.0;
  const evaluate::Score* own = scores.data();
  for (const Question& one : questions) {
    plain += is_chosen(one, own, std::vector<double>(one.bytes.size(), 1.0)) ? 1.0 : 0.0;
    by_characters += is_chosen(one, own, one.characters) ? 1.0 : 0.0;
    by_bytes += is_chosen(one, own, one.bytes) ? 1.0 : 0.0;
    greedy += own[one.answer].is_greedy ? 1.0 : 0.0;
    loss -= own[one.answer].log_probability;
    own += one.bytes.size();
  }
  const auto count = static_cast<double>(questions.size());
  Json found;
  found["questions"] = questions.size();
  found["acc"] = plain / count;
  found["acc_norm"] = by_characters / count;
  found["acc_bytes"] = by_bytes / count;
  found["greedy"] = greedy / count;
  found["perplexity"] = std::exp(loss / count);
  return found;
}

}  // namespace

Job choice_job(const EvaluateLine& line, const std::string& path, const FindEncoder& encoder) {
  Job job;
  std::vector<Question> questions;
  for_each_record(path, [&](const Json& record) {
    const std::string context = text_of(record, "context");
    questions.push_back(question_of(record));
    for (const Json& choice : record["choices"])
      job.sequences.push_back(
          encoder().pair(context, line.delimiter + choice.get_ref<const std::string&>()));
  });
  job.write = [path, json = line.json, questions](const auto& scores) {
    write_found(path, found_of(questions, scores), json);
  };
  return job;
}

}  // namespace ostrakon::apps
