// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/print.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::plan {

// How a picture of a plan looks: its colors, and its text as SVG.

/// Readable on white and on black: "#3f9b5f".
const char* color(Kind kind);
const char* color(Category category);

/// `text` escaped for XML; what is no character there is replaced.
std::string escape(const std::string& text);

/// A part of an image, of this size in pixels.
struct Drawing {
  double width = 0.0, height = 0.0;
  std::string text;
};

/// One below the other, as an SVG image that needs no other file.
std::string svg_image(const std::vector<Drawing>& drawings);

/// A line of text that begins at (x, y), of CSS classes `css`; not yet escaped.
std::string words(double x, double y, const std::string& css, const std::string& what,
                  const std::string& attributes = "");

/// Colors and their labels, next to each other from `first_x`; `what` they are about is at the left
/// of the image.
std::string legend(const char* what, double first_x, double y,
                   const std::vector<std::pair<std::string, std::string>>& entries);

/// Floating-point operations in three digits: "3.44 PFLOP".
std::string flops_text(double flops);

}  // namespace ostrakon::plan
