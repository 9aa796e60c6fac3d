// SPDX-License-Identifier: Apache-2.0
// The queues of a device, and programs on them.
#include <fake_device/runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/runtime/queue.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/messages.hpp"

namespace {

using namespace ostrakon;
using namespace std::chrono_literals;
using plan::Kind;
using plan::Role;
using plan::Stream;

const std::atomic<bool> goes_on{false};

TEST(DeviceQueue, WaitsByEventAndBlocksNobody) {
  runtime::DeviceQueue first(device::Priority::normal), second(device::Priority::high);
  first.begin({1});
  second.begin({0});
  std::atomic<bool> may_end{false};
  launch(first.exec(), "test", [&](const KernelSpace&) {
    while (!may_end) std::this_thread::sleep_for(1ms);
  });
  ASSERT_TRUE(first.add(goes_on));
  ASSERT_TRUE(second.wait(first, 1, goes_on));  // returns while the first continues
  // Kernels of the fake device run one at a time, so a copy is used to show the order.
  std::vector<char> from(1, 'x');
  const device::DeviceBytes to(1);
  device::copy_to_device(stream_of(second.exec()), from.data(), to.data(), 1);
  std::this_thread::sleep_for(10ms);
  from[0] = 'y';
  may_end = true;
  ASSERT_TRUE(second.add(goes_on));
  second.finish(goes_on);
  char copied = 0;
  device::copy_to_host(stream_of(second.exec()), to.data(), &copied, 1);
  second.finish(goes_on);
  EXPECT_EQ(copied, 'y') << "the copy did not wait";
  first.finish(goes_on);
}

TEST(DeviceQueue, ARunAsLongAsOneBeforeCreatesNoEvents) {
  runtime::DeviceQueue queue(device::Priority::normal);
  queue.begin({1, 0, 1});
  const long before = fake_calls("cudaEventCreateWithFlags");
  queue.begin({0, 1, 1});
  EXPECT_EQ(fake_calls("cudaEventCreateWithFlags"), before);
  queue.begin({1, 1, 1, 0});
  EXPECT_EQ(fake_calls("cudaEventCreateWithFlags"), before + 2) << "before and behind the fourth";
}

TEST(DeviceQueue, WorkIsTimedOnTheDevice) {
  runtime::DeviceQueue first(device::Priority::normal), second(device::Priority::high);
  first.begin({1, 0});
  second.begin({0});
  const auto sleep_in_kernel = [](const Exec& exec, std::chrono::milliseconds time) {
    launch(exec, "test", [time](const KernelSpace&) { std::this_thread::sleep_for(time); });
  };
  const double begin = seconds_now();
  first.mark_begin();
  sleep_in_kernel(first.exec(), 20ms);
  ASSERT_TRUE(first.add(goes_on));
  first.mark_begin();  // a piece without work
  ASSERT_TRUE(first.add(goes_on));
  ASSERT_TRUE(second.wait(first, 1, goes_on));
  second.mark_begin();
  sleep_in_kernel(second.exec(), 30ms);
  ASSERT_TRUE(second.add(goes_on));
  const double submitted = seconds_now();
  EXPECT_LT(submitted - begin, 0.02) << "submitting waited";
  first.finish(goes_on);
  second.finish(goes_on);
  const double end = seconds_now();
  const runtime::ActionTime sleeps = first.time_of(0).value(), nothing = first.time_of(1).value(),
                            follows = second.time_of(0).value();
  EXPECT_GE(sleeps.end - sleeps.begin, 0.02);
  EXPECT_GE(follows.end - follows.begin, 0.03);
  EXPECT_LT(nothing.end - nothing.begin, 0.02);
  constexpr double clock = 5e-3;  // tolerance between two streams' clocks, on a busy machine
  EXPECT_GE(sleeps.begin, begin - clock);
  EXPECT_GE(follows.begin, sleeps.end - clock);
  EXPECT_LE(follows.end, end + clock);
}

TEST(HostQueue, IsDoneWhenItsDeviceWorkIs) {
  runtime::ThreadQueue queue(device::Priority::normal);
  queue.begin({0});
  std::atomic<bool> done{false};
  launch(queue.exec(), "test", [&](const KernelSpace&) {
    std::this_thread::sleep_for(10ms);
    done = true;
  });
  ASSERT_TRUE(queue.add(goes_on));
  EXPECT_TRUE(done);
}

/// An action on a stream that waits for the actions of the given indices. It adds its index to the
/// result of its predecessor in `chain`, in a buffer in device memory or, on Stream::host, in host
/// memory.
struct Step {
  Stream stream;
  std::vector<int> waits;
};

runtime::Program program_of(const std::vector<Step>& steps) {
  runtime::Program program;
  for (const plan::Space space : {plan::Space::device, plan::Space::host}) {
    plan::Buffer buffer;
    buffer.space = space;
    buffer.bytes = 64;
    buffer.name = space == plan::Space::device ? "on the device" : "on the host";
    program.plan.buffers.push_back(buffer);
  }
  program.memory.offsets = {0, -1};
  program.memory.arena_bytes = 64;
  program.host_memory.offsets = {-1, 0};
  program.host_memory.arena_bytes = 64;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    plan::Action action;
    action.stream = steps[i].stream;
    action.kind = steps[i].stream == Stream::download ? Kind::copy_to_host
                  : steps[i].stream == Stream::upload ? Kind::copy_to_device
                  : steps[i].stream == Stream::host   ? Kind::clip
                                                      : Kind::optimize;
    action.waits = steps[i].waits;
    action.unit = static_cast<int>(i);
    action.uses = {{Role::target, 0, plan::Access::read_write},
                   {Role::source, 1, plan::Access::read_write}};
    program.plan.actions.push_back(action);
  }
  return program;
}

TEST(DeviceStreams, HostAndDeviceTakeTurns) {
  // The chain is: compute adds 1, download, the host doubles, upload, compute adds 1, download, ...
  std::vector<Step> steps = {{Stream::compute, {}}};
  for (int round = 0; round < 20; ++round) {
    const int last = static_cast<int>(steps.size()) - 1;
    steps.push_back({Stream::download, {last}});
    steps.push_back({Stream::host, {last + 1}});
    steps.push_back({Stream::upload, {last + 2}});
    steps.push_back({Stream::compute, {last + 3}});
  }
  const runtime::Program program = program_of(steps);
  const runtime::Arena device(64), host(64, plan::Space::host);
  runtime::Executor executor({device.data(), host.data()}, runtime::Streams::device);
  const auto value = [](const runtime::ActionBuffers& buffers) {
    return buffers.device_view<std::int64_t>(Role::target).range(0, 1);
  };
  const auto on_host = [](const runtime::ActionBuffers& buffers) {
    return buffers.host_view<std::int64_t>(Role::source).range(0, 1);
  };
  executor.on(Kind::optimize, [&](const runtime::ActionBuffers& buffers) {
    const bool begins = buffers.action.unit == 0;
    const auto at = value(buffers);
    launch(buffers.exec, "test",
           [=](const KernelSpace&) { at[0] = begins ? 1 : (at[0] + 1) % 1000003; });
  });
  executor.on(Kind::copy_to_host, [&](const runtime::ActionBuffers& buffers) {
    math::begin_copy_to_host(buffers.exec, value(buffers), on_host(buffers));
  });
  executor.on(Kind::clip, [&](const runtime::ActionBuffers& buffers) { on_host(buffers)[0] *= 2; });
  executor.on(Kind::copy_to_device, [&](const runtime::ActionBuffers& buffers) {
    math::begin_copy_to_device(buffers.exec, on_host(buffers), value(buffers));
  });
  std::int64_t expected = 1;
  for (int round = 0; round < 20; ++round) expected = (expected * 2 + 1) % 1000003;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    fake_shake(seed, 200.0);
    executor.run(program);
    std::int64_t seen = 0;
    math::copy_to_host(Exec(),
                       View<std::int64_t*>(reinterpret_cast<std::int64_t*>(device.data()), 1),
                       HostView<std::int64_t*>(&seen, 1));
    ASSERT_EQ(seen, expected) << seed;
  }
  fake_shake(0, 0.0);
}

TEST(DeviceStreams, AFailureOnAThreadSkipsWhatDependsOnIt) {
  const runtime::Program program = program_of({{Stream::compute, {}},
                                               {Stream::host, {0}},
                                               {Stream::upload, {1}},
                                               {Stream::compute, {2}},
                                               {Stream::reduce, {0}}});
  const runtime::Arena device(64), host(64, plan::Space::host);
  runtime::Executor executor({device.data(), host.data()}, runtime::Streams::device);
  std::vector<int> ran;
  const auto note = [&](const runtime::ActionBuffers& buffers) {
    ran.push_back(buffers.action.unit);
  };
  executor.on(Kind::optimize, note);
  executor.on(Kind::copy_to_device, note);
  executor.on(Kind::clip, [](const runtime::ActionBuffers&) { throw Error("judged"); });
  EXPECT_EQ(ostrakon::testing::error_of([&] { executor.run(program); }), "judged");
  EXPECT_EQ(ran, (std::vector<int>{0, 4}));
}

TEST(DeviceStreams, TheThreadThatCallsDoesNotWaitForTheDevice) {
  const runtime::Program program = program_of({{Stream::compute, {}}, {Stream::reduce, {0}}});
  const runtime::Arena device(64), host(64, plan::Space::host);
  runtime::Executor executor({device.data(), host.data()}, runtime::Streams::device);
  std::atomic<int> called{0};
  executor.on(Kind::optimize, [&](const runtime::ActionBuffers& buffers) {
    ++called;
    launch(buffers.exec, "test", [&](const KernelSpace&) {
      while (called < 2) std::this_thread::sleep_for(1ms);
    });
  });
  executor.run(program);  // would deadlock if it waited for the first
  EXPECT_EQ(called, 2);
}

}  // namespace
