from .launch import Answers as Answers
from .launch import Imported as Imported
from .launch import ImportedSetting as ImportedSetting
from .launch import LaunchFile as LaunchFile
from .launch import LineChange as LineChange
from .launch import Remark as Remark
from .launch import Rewritten as Rewritten
