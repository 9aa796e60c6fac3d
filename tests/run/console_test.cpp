// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/run/console.hpp>
#include <sstream>

#include "support/messages.hpp"

namespace ostrakon::train {
namespace {

StepMetrics of_step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.result.loss = 2.5;
  metrics.result.grad_norm = 0.125;
  metrics.result.learning_rate = 1e-3;
  metrics.tokens_per_second = 1234.0;
  metrics.mfu = 0.4;
  return metrics;
}

std::string line_of(const std::string& step, const std::string& to_go = "") {
  return "  step " + step +
         "  loss 2.5000  grad norm 0.125  lr 1.00e-03  1,234 tokens/s  MFU 40 %" +
         (to_go.empty() ? "" : "  " + to_go + " to go");
}

/// A clock that goes on by so many seconds with each look: one for each step that is shown.
struct Clock {
  double step = 1.0;
  double now = 0.0;
  double operator()() { return now += step; }
};

TEST(Console, PrintsEveryNthStepTheFirstAndTheLast) {
  std::ostringstream out;
  Console console(out, {true, false, 10, 4, Clock()});
  for (int step = 1; step <= 10; ++step) console.show(of_step(step));
  EXPECT_EQ(out.str(), line_of(" 1/10") + "\n" + line_of(" 4/10", "00:00:06") + "\n" +
                           line_of(" 8/10", "00:00:02") + "\n" + line_of("10/10") + "\n");
}

TEST(Console, TimeToGoIsOfTheStepsOfThisProcess) {
  std::ostringstream out;
  Console console(out, {true, false, 100'000, 1, Clock{2.5}});
  console.show(of_step(40'000));  // resumed: what it took is not known
  console.show(of_step(40'001));
  EXPECT_EQ(out.str(),
            line_of(" 40000/100000") + "\n" + line_of(" 40001/100000", "1-17:39:58") + "\n");
}

TEST(Console, RewritesTheLineOnATerminal) {
  std::ostringstream out;
  Console console(out, {true, true, 9, 3, Clock()});
  const std::string rewrite = "\r\033[K";
  console.show(of_step(2));
  EXPECT_EQ(out.str(), rewrite + line_of("2/9"));
  console.show(of_step(3));  // one that stays
  console.show(of_step(4));
  console.say("words\n");
  console.end_line();
  EXPECT_EQ(out.str(), rewrite + line_of("2/9") + rewrite + line_of("3/9", "00:00:06") + "\n" +
                           rewrite + line_of("4/9", "00:00:05") + "\nwords\n");
}

TEST(Console, SaysThatMfuIsAnUpperBound) {
  std::ostringstream out;
  Console console(out, {true, false, 1, 1});
  StepMetrics metrics = of_step(1);
  metrics.mfu_uncertain = true;
  console.show(metrics);
  EXPECT_HAS(out.str(), "MFU <= 40 %");
}

TEST(Console, ValidationsStandOnALineOfTheirOwn) {
  std::ostringstream out;
  Console console(out, {true, true, 9, 3});
  console.show(of_step(2));
  ValidationMetrics metrics;
  metrics.step = 2;
  metrics.validation_loss = 1.5;
  console.show(metrics);
  metrics.bits_per_byte = 0.75;
  console.show(metrics);
  metrics.ema_validation_loss = 1.25;
  console.show(metrics);
  console.show(EvaluationMetrics{2, {{"a.jsonl", {{"acc", 0.5}, {"acc_norm", 0.25}}}}});
  EXPECT_EQ(out.str(), "\r\033[K" + line_of("2/9") +
                           "\n  step 2  validation loss 1.5"
                           "\n  step 2  validation loss 1.5  0.75 bits per byte"
                           "\n  step 2  validation loss 1.5  0.75 bits per byte  of averages 1.25"
                           "\n  step 2  a.jsonl:  acc 0.5  acc_norm 0.25\n");
}

TEST(Console, IsSilentOnOtherRanks) {
  std::ostringstream out;
  Console console(out, {false, true, 9, 1});
  EXPECT_FALSE(console.is_root());
  console.say("words\n");
  console.show(of_step(1));
  console.show(of_step(2));
  console.show(ValidationMetrics());
  console.show(EvaluationMetrics{1, {{"a.jsonl", {}}}});
  console.end_line();
  EXPECT_EQ(out.str(), "");
}

TEST(Console, ShowsControlCharacters) {
  std::ostringstream out;
  Console console(out, {true, false, 1, 1});
  console.say("a\x1b[2Jb\nc\n");
  EXPECT_LACKS(out.str(), "\x1b");
  EXPECT_HAS(out.str(), "b\nc\n");
}

TEST(Console, WhatCanNotBeWrittenIsWrittenLater) {
  /// Takes nothing while it is full.
  struct Full : std::stringbuf {
    bool is_full = false;
    std::streamsize xsputn(const char* words, std::streamsize count) override {
      return is_full ? 0 : std::stringbuf::xsputn(words, count);
    }
  } buffer;
  std::ostream out(&buffer);
  Console console(out, {true, false, 9, 1});
  console.say("one\n");
  buffer.is_full = true;
  console.say("two\n");
  console.show(of_step(2));
  buffer.is_full = false;
  console.say("three\n");
  EXPECT_EQ(buffer.str(), "one\ntwo\n" + line_of("2/9") + "\nthree\n");
}

}  // namespace
}  // namespace ostrakon::train
