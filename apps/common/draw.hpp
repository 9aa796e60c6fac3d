// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ostrakon::apps {

/// What the Python package ostrakon_report is to draw.
struct Picture {
  std::string command;     ///< of the package: "plan"
  std::string title = "";  ///< empty: none
  std::string json;
  std::string trace = "";  ///< the trace.json of a run, to be drawn beside; empty: none
};

/// Writes the JSON to `path`.json and has python3 draw it as a file `path` of this format: "svg" or
/// "html". Where `path` is a device or a pipe, the JSON is a temporary file. Throws Error where
/// that fails or python3 has no such package: then the JSON stays, and the message has the command
/// that draws it.
void draw(const Picture& picture, const std::string& path, const std::string& format);

/// Has the package write `outputs`, whose extensions say what they are, from a JSON file that is
/// there. Throws Error as draw() does.
void draw_file(const std::string& command, const std::string& json,
               const std::vector<std::string>& outputs);

}  // namespace ostrakon::apps
