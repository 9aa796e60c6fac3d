// SPDX-License-Identifier: Apache-2.0
#include "questions.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <ostrakon/data/data_settings.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/text/utf8.hpp>

#include "records.hpp"

namespace ostrakon::apps {

namespace fs = std::filesystem;

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
          "expected the number of a choice as `answer`, ",
          choices == 1 ? text("0, as there is one choice") : text("0 to ", choices - 1));
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

train::EvaluationScores found_of(const std::vector<Question>& questions,
                                 const std::vector<evaluate::Score>& scores, Greedy told) {
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
  train::EvaluationScores found = {
      {"acc", plain / count}, {"acc_norm", by_characters / count}, {"acc_bytes", by_bytes / count}};
  if (told == Greedy::known) found.emplace_back("greedy", greedy / count);
  found.emplace_back("perplexity", std::exp(loss / count));
  return found;
}

/// The files that a path names: itself, or those of a folder that end with .jsonl, by name.
std::vector<std::string> files_at(const std::string& path) {
  require(is_there(path), "'", path, "' does not exist; expected a file of questions, or a folder");
  if (!is_folder(path)) return {path};
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  require(!files.empty(), "folder '", path, "' has no file that ends with .jsonl");
  return files;
}

/// What to open as the tokenizer of the data.
std::string tokenizer_path_of(const config::Settings& settings, const std::string& tokenizer) {
  if (tokenizer == data::ByteTokenizer::name) return tokenizer;
  std::vector<std::string> places = {settings.model_folder, settings.checkpoint.initial_weights};
  for (const data::WeightedFile& file : data::read_files(settings.data.path))
    places.push_back(parent_folder(file.path));
  for (const std::string& place : places)
    if (!place.empty() && is_there(place) && checkpoint::huggingface_tokenizer(place) == tokenizer)
      return is_folder(place) ? place : parent_folder(place);
  throw Error(text("the data are tokens of the tokenizer '", tokenizer,
                   "', whose files are not in the folder of model.from, "
                   "checkpoint.initial_weights or data.path; expected them in one of these"));
}

}  // namespace

train::QuestionFile read_questions(const std::string& path, const std::string& delimiter,
                                   const FindEncoder& encoder, Greedy greedy) {
  train::QuestionFile file;
  file.name = fs::path(path).filename().string();
  std::vector<Question> questions;
  for_each_record(path, [&](const Json& record) {
    const std::string context = text_of(record, "context");
    questions.push_back(question_of(record));
    for (const Json& choice : record["choices"])
      file.sequences.push_back(
          encoder().pair(context, delimiter + choice.get_ref<const std::string&>()));
  });
  file.questions = static_cast<std::int64_t>(questions.size());
  file.judge = [questions, greedy](const auto& scores) {
    return found_of(questions, scores, greedy);
  };
  return file;
}

std::vector<train::QuestionFile> open_questions(const config::Settings& settings,
                                                const std::string& tokenizer) {
  const std::vector<std::string> paths = files_at(settings.training.evaluate);
  const auto opened = texts::open_tokenizer(tokenizer_path_of(settings, tokenizer));
  require(opened->name() == tokenizer && opened->vocabulary() <= settings.model.vocabulary,
          "the tokenizer of the data is '", tokenizer, "', its files have '", opened->name(),
          "' with a vocabulary of ", opened->vocabulary(),
          "; expected that tokenizer, and at most ", settings.model.vocabulary,
          " as model.vocabulary");
  Encoder encoder(*opened);
  std::vector<train::QuestionFile> files;
  for (const std::string& path : paths)
    files.push_back(read_questions(
        path, " ", [&]() -> Encoder& { return encoder; }, Greedy::unknown));
  return files;
}

}  // namespace ostrakon::apps
