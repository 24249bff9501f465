"""The testbed's messages in a capture: who sent which one when, for people, scapy and Wireshark.

All three are made from the table of ``testbed.wire.header_fields``.
"""
