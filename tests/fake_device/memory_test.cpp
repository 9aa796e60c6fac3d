// SPDX-License-Identifier: Apache-2.0
// The fake device detects errors: host code that accesses device memory crashes, streams run
// independently and in order, and calls fail on request.
#include <fake_device/runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ostrakon/base/error.hpp>
#include <ostrakon/device/memory.hpp>
#include <ostrakon/device/stream.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/transfer.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/messages.hpp"

namespace {

using namespace ostrakon;

View<float*> floats_at(const device::DeviceBytes& memory, std::int64_t count) {
  return {reinterpret_cast<float*>(memory.data()), count};
}

TEST(FakeDeviceDeathTest, HostCodeThatReadsOrWritesDeviceMemoryDies) {
  const device::DeviceBytes memory(64);
  volatile float* const at = reinterpret_cast<float*>(memory.data());
  EXPECT_DEATH(*at = 1.0F, "");
  EXPECT_DEATH(static_cast<void>(*at), "");
}

TEST(FakeDevice, KernelsReachIt) {
  const device::DeviceBytes memory(64);
  const device::Stream stream;
  const Exec exec(stream.handle());
  math::fill(exec, floats_at(memory, 16), 2.5F);
  std::vector<float> values(16);
  math::copy_to_host(exec, View<const float*>(floats_at(memory, 16)), host_view(values));
  EXPECT_EQ(values, std::vector<float>(16, 2.5F));
}

TEST(FakeDevice, WhatWasNotWrittenIsNoNumber) {
  const device::DeviceBytes memory(64);
  std::vector<float> values(16);
  math::copy_to_host(Exec(), View<const float*>(floats_at(memory, 16)), host_view(values));
  for (const float value : values) EXPECT_NE(value, value);
}

TEST(FakeDevice, StreamsAreInOrderAndConcurrent) {
  const device::Stream slow, fast;
  std::atomic<bool> may_end{false};
  std::vector<int> order;
  launch(Exec(slow.handle()), "test", [&](const KernelSpace&) { order.push_back(1); });
  launch(Exec(slow.handle()), "test", [&](const KernelSpace&) { order.push_back(2); });
  device::wait_for(slow.handle());
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  // A stream that waits for an event does not block others.
  device::Event event;
  launch(Exec(slow.handle()), "test", [&](const KernelSpace&) {});
  event.record(slow.handle());
  event.delay(fast.handle());
  launch(Exec(fast.handle()), "test", [&](const KernelSpace&) { may_end = true; });
  device::wait_for(fast.handle());
  EXPECT_TRUE(may_end);
  EXPECT_TRUE(event.is_reached());
}

TEST(FakeDevice, AnEventDelaysAStream) {
  const device::Stream first, second;
  std::atomic<int> at{0};
  device::Event event;
  launch(Exec(first.handle()), "test", [&](const KernelSpace&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    at = 1;
  });
  event.record(first.handle());
  event.delay(second.handle());
  int seen = -1;
  launch(Exec(second.handle()), "test", [&](const KernelSpace&) { seen = at; });
  device::wait_for(second.handle());
  EXPECT_EQ(seen, 1);
  device::wait_for(first.handle());
}

TEST(FakeDevice, CopiesInTheWrongDirectionFail) {
  const device::DeviceBytes memory(64);
  std::vector<char> host(64);
  const device::Stream stream;
  EXPECT_THROW(device::copy_to_host(stream.handle(), host.data(), host.data(), 64), Error);
  EXPECT_THROW(device::copy_to_device(stream.handle(), memory.data(), memory.data(), 64), Error);
}

TEST(FakeDevice, HasAsMuchMemoryAsItSays) {
  const device::MemoryInfo before = device::memory_info();
  const device::DeviceBytes memory(1 << 20);
  EXPECT_EQ(before.free - device::memory_info().free, 1 << 20);
  EXPECT_EQ(
      ostrakon::testing::error_of([&] { const device::DeviceBytes more(before.total); }),
      text("cudaMalloc failed: out of memory, for ", before.total, " bytes of device memory"));
}

}  // namespace
