// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/evaluate/scorer.hpp>
#include <ostrakon/evaluate/sequences.hpp>
#include <ostrakon/run/question_files.hpp>
#include <string>
#include <vector>

#include "encoder.hpp"

namespace ostrakon::apps {

/// Makes an Encoder with the model's tokenizer when a text is there, as there may be ids alone.
/// Throws Error where the tokenizer is not found.
using FindEncoder = std::function<Encoder&()>;

/// Whether the scores of choices say which of them are greedy.
enum class Greedy { unknown, known };

/// Questions with several answers, of which the likeliest is the model's: a file with a JSON object
/// in each line, with `context`, `choices` (a list of texts) and `answer` (the number of the right
/// one, from 0). The choices are sequences one after the other. Findings are shares of questions
/// with the right answer (acc, acc_norm by characters, acc_bytes; greedy, where it is known), and
/// the perplexity of right answers. `delimiter`: between a context and a choice. Throws Error,
/// naming the file and the line, for what can't be read or is not so.
train::QuestionFile read_questions(const std::string& path, const std::string& delimiter,
                                   const FindEncoder& encoder, Greedy greedy);

/// Opens the questions of a deck: see train::OpenQuestions. The tokenizer of the data is `byte`, or
/// is found in the folders of the model, of the initial weights or of the data.
std::vector<train::QuestionFile> open_questions(const config::Settings& settings,
                                                const std::string& tokenizer);

}  // namespace ostrakon::apps
