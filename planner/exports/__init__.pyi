from .launch import Launch as Launch
from .launch import LaunchSetting as LaunchSetting
from .launch import Placeholder as Placeholder
